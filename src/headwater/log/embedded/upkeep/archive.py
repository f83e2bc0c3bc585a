"""Archiving: files of old chunks move to another folder or an object store; reads span both without noticing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from headwater.errors import Corrupt
from headwater.log.embedded import chunks
from headwater.log.embedded.rows import Chunk, KnownTopic, chunk_bounds, select_chunks

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


def archive(log: EmbeddedLog, topic: KnownTopic, url: str, *, older_than_s: float) -> int:
    """Returns how many chunks moved. One at a time: copied, read back, then listed there and no longer here."""
    before = log.clock() - int(older_than_s * 1_000_000)
    with log.catalog.read() as catalog:
        listed = select_chunks(catalog, topic.id, "file IS NOT NULL AND file NOT LIKE '%://%'", ())
        old = [chunk for chunk in listed if int(chunk_bounds(catalog, chunk).times[-1]) <= before]
    return sum(_move(log, chunk, url) for chunk in old)


def _move(log: EmbeddedLog, chunk: Chunk, url: str) -> bool:
    assert chunk.file is not None
    here = chunk.file
    content = log.disk.read(here)
    if chunks.crc(content) != chunk.crc:
        raise Corrupt(what="the chunk to be archived", file=here)
    there = f"{url.rstrip('/')}/{here}"
    if not log.disk.exists(there) or chunks.crc(log.disk.read(there)) != chunk.crc:  # a crash may have left a part
        log.disk.write(there, content)

    def relist(catalog: apsw.Connection) -> bool:
        catalog.execute("UPDATE chunks SET file = ? WHERE id = ? AND file = ?", (there, chunk.id, here))
        if catalog.changes() != 1:
            return False
        catalog.execute("INSERT OR IGNORE INTO garbage VALUES (?, ?)", (here, log.clock()))
        return True

    return log.committer.run(relist)
