"""The one way in which upkeep changes a log: some neighbouring chunks out, others in, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from headwater.log.embedded.rows import Chunk, is_listed

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


@dataclass(frozen=True)
class NewChunk:
    """A chunk that upkeep has written: its file is durable, no row lists it yet."""

    row: tuple[Any, ...]
    file: str | None


def swap_in(catalog: apsw.Connection, old: Sequence[Chunk], new: Sequence[NewChunk], *, now: int) -> bool:
    """True if done; False if some of the old chunks are no longer listed: somebody else was faster."""
    if not all(is_listed(catalog, chunk) for chunk in old):
        return False
    ids = json.dumps([chunk.id for chunk in old])  # one value: there may be more than SQLite takes as parameters
    among = "id IN (SELECT value FROM json_each(?))"
    catalog.execute(
        f"INSERT OR IGNORE INTO garbage SELECT file, ? FROM chunks WHERE {among} AND file IS NOT NULL", (now, ids)
    )
    catalog.execute(f"DELETE FROM chunks WHERE {among}", (ids,))
    catalog.executemany(
        'INSERT INTO chunks(topic, partition, start, "end", rows, append, last_append, schema, crc, size, appended_at,'
        " time_before, file, data, bounds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [chunk.row for chunk in new],
    )
    return True


def swap(log: EmbeddedLog, old: Sequence[Chunk], new: Sequence[NewChunk]) -> bool:
    done = log.committer.run(lambda catalog: swap_in(catalog, old, new, now=log.clock()))
    if not done:
        for chunk in new:
            if chunk.file is not None:
                log.disk.remove(chunk.file)
    return done


def runs(some: Sequence[Chunk], *, small: int, most: int) -> Iterator[list[Chunk]]:
    """Neighbouring chunks, each below `small` bytes, together about `most`; single ones are left out."""
    run: list[Chunk] = []
    size = 0
    for chunk in some:
        if run and (chunk.partition != run[-1].partition or chunk.size >= small or size + chunk.size > most):
            if len(run) > 1:
                yield run
            run, size = [], 0
        if chunk.size < small:
            run.append(chunk)
            size += chunk.size
    if len(run) > 1:
        yield run
