"""Checking the chunks of a partition, one by one, while others append and upkeep swaps.

It goes on by offset, a page of the listing at a time, and holds no transaction while it reads files. What was swapped
on the way is listed again from there. Every byte is read anew: nothing that this process verified before is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
from pyarrow import ipc

from headwater.errors import Corrupt, StorageFailed, TopicNotFound
from headwater.log.embedded import chunks, topics
from headwater.log.embedded.bounds import Bounds, Ints
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.digest import PartitionDigest
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.rows import Chunk, KnownTopic, chunk_bounds, chunk_data, extents_of, select_chunks
from headwater.log.evolution import conform
from headwater.log.protocol import Extent
from headwater.records import OFFSET

PAGE_CHUNKS = 256
PAGE_BYTES = 4 * 1024 * 1024
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)

Advance = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(frozen=True)
class Finding:
    """Something a check has found: what, where, and whether records are lost or wrong because of it."""

    what: str
    serious: bool = True
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        parts = (("topic", self.topic), ("partition", self.partition), ("offset", self.offset), ("file", self.file))
        where = ", ".join(f"{name} {value}" for name, value in parts if value is not None)
        return f"{where}: {self.what}" if where else self.what


@dataclass
class Tally:
    """What was found and counted so far; `advance` reports it."""

    total: int
    report: Advance | None = None
    findings: list[Finding] = field(default_factory=list)
    done: int = 0
    chunks: int = 0
    records: int = 0

    def advance(self, size: int) -> None:
        self.reach(self.done + size)

    def reach(self, done: int) -> None:
        self.done = done
        if self.report is not None:
            self.report(min(self.done, self.total), self.total)


class _Swapped(Exception):
    """Internal: upkeep has put another chunk in the place of this one. List again."""


@dataclass(frozen=True)
class _Page:
    topic: KnownTopic
    extent: Extent
    last: int | None
    """Where the last chunk of the partition ends."""
    listed: list[tuple[Chunk, bytes | None, Bounds | None]]


class PartitionCheck:
    def __init__(
        self, catalog: Catalog, disk: Disk, topic: KnownTopic, partition: int, end: int, *, tally: Tally
    ) -> None:
        self._catalog = catalog
        self._disk = disk
        self._topic = topic
        self._partition = partition
        self._end = end
        self._tally = tally
        self._digest = PartitionDigest()

    def run(self) -> str | None:
        """Check all that is listed before the end; the digest of its records, None if the topic was deleted."""
        here: int | None = None
        while here is None or here < self._end:
            try:
                page = self._page(here)
                if here is None:
                    self._check_extent(page)
                if not page.listed:
                    break
                here = self._check_page(page, here)
            except TopicNotFound:
                return None
            except (Corrupt, apsw.Error) as error:
                self._found(damage(error), offset=here, file=self._catalog.path.name)
                break
        return self._digest.hex()

    def _page(self, here: int | None) -> _Page:
        with self._catalog.read() as catalog:
            known = topics.find(catalog, self._topic.spec.name)
            if known.id != self._topic.id:
                raise TopicNotFound(topic=known.spec.name)
            extent = extents_of(catalog, known)[self._partition]
            last: Any = catalog.execute(
                'SELECT max("end") FROM chunks WHERE topic = ? AND partition = ?', (known.id, self._partition)
            ).get
            given = (self._partition, -1 if here is None else here, self._end)
            page, size = [], 0
            for chunk in select_chunks(
                catalog, known.id, 'partition = ? AND "end" > ? AND start < ?', given, limit=PAGE_CHUNKS
            ):
                if size > PAGE_BYTES:
                    break
                data = chunk_data(catalog, chunk) if chunk.file is None else None
                size += len(data) if data is not None else 0
                page.append((chunk, data, _bounds(catalog, chunk)))
            return _Page(known, extent, last, page)

    def _check_extent(self, page: _Page) -> None:
        extent = page.extent
        if (extent.start if page.last is None else page.last) != extent.end:
            ends = "there are no chunks" if page.last is None else f"the last chunk ends at {page.last}"
            self._found(f"the partition ends at {extent.end}, but {ends}", offset=page.last)
        if not 0 <= extent.start <= extent.end or not 0 <= extent.horizon <= extent.end:
            self._found(f"its start {extent.start} or horizon {extent.horizon} is beyond its end {extent.end}")
        if page.listed and page.listed[0][0].start > extent.start:
            first = page.listed[0][0].start
            self._found(f"no chunk has the offsets {extent.start} to {first - 1}", offset=extent.start)

    def _check_page(self, page: _Page, here: int | None) -> int:
        """Where the checked part ends now. A chunk that was swapped while we looked ends the page early."""
        extent = page.extent
        visible = 0 if extent.horizon >= extent.start else extent.start
        before: Chunk | None = None
        for chunk, data, bounds in page.listed:
            reached = here if here is not None else chunk.start
            due = max(reached, extent.start) if before is None else before.end
            if here is not None and chunk.start > due:
                self._found(f"no chunk has the offsets {due} to {chunk.start - 1}", offset=due)
            if before is not None and chunk.start < before.end:
                self._found(f"two chunks have the offsets {chunk.start} to {before.end - 1}", offset=chunk.start)
            if before is not None and chunk.append < before.last_append:
                self._found(f"append {chunk.append} comes after append {before.last_append}", offset=chunk.start)
            try:
                content = self._content(chunk, data)
            except _Swapped:
                return reached
            if content is not None:
                self._check_chunk(page.topic, chunk, content, max(reached, visible))
            self._check_bounds(chunk, bounds)
            self._tally.advance(chunk.size)
            before, here = chunk, max(reached, chunk.end)
        assert here is not None
        return here

    def _content(self, chunk: Chunk, data: bytes | None) -> pa.Buffer | None:
        """The chunk's bytes as they are now, None if they cannot be had; `_Swapped` if it is no longer listed."""
        if chunk.file is None:
            return pa.py_buffer(data or b"")
        try:
            return self._disk.read(chunk.file)
        except (Corrupt, StorageFailed) as error:
            with self._catalog.read() as catalog:
                query = "SELECT 1 FROM chunks WHERE id = ? AND file = ?"
                if catalog.execute(query, (chunk.id, chunk.file)).fetchone() is None:
                    raise _Swapped from None
            missing = isinstance(error, Corrupt)
            self._found("its file is missing" if missing else str(error), offset=chunk.start, file=chunk.file)
            return None

    def _check_chunk(self, topic: KnownTopic, chunk: Chunk, content: pa.Buffer, low: int) -> None:
        where: dict[str, Any] = {"offset": chunk.start, "file": chunk.file or self._catalog.path.name}
        if chunks.crc(content) != chunk.crc or content.size != chunk.size:
            self._found("the chunk's bytes are not those that were written (CRC-32C)", **where)
            return
        if chunk.schema not in topic.schemas:
            self._found(f"the chunk names version {chunk.schema} of the schema, which is not there", **where)
            return
        try:
            seen = self._check_records(topic, chunk, content, low)
        except _UNREADABLE as error:
            self._found(f"the chunk's records cannot be read: {error}", **where)
            return
        if seen != chunk.rows or chunk.rows > chunk.end - chunk.start:
            span = chunk.end - chunk.start
            self._found(f"the chunk has {seen} records, listed are {chunk.rows} in {span} offsets", **where)
        self._tally.chunks += 1

    def _check_records(self, topic: KnownTopic, chunk: Chunk, content: pa.Buffer, low: int) -> int:
        schema = topic.stored(chunk.schema)
        if chunk.sparse:
            schema = schema.append(pa.field(OFFSET, pa.int64()))
        wanted = self._topic.spec.stored
        last, seen = chunk.start - 1, 0
        for batch in _decoded(chunk, content, schema):
            if batch.schema.names != schema.names or batch.schema.types != schema.types:
                raise ValueError(f"they have the columns {batch.schema.names}, not those of version {chunk.schema}")
            batch.validate(full=True)
            offsets: Ints = np.arange(chunk.start + seen, chunk.start + seen + batch.num_rows)
            if chunk.sparse:
                offsets = batch.column(OFFSET).to_numpy()
            if len(offsets) and (offsets[0] <= last or offsets[-1] >= chunk.end or (np.diff(offsets) <= 0).any()):
                raise ValueError(f"offsets are not ascending in {chunk.start} to {chunk.end - 1}")
            last, seen = (int(offsets[-1]) if len(offsets) else last), seen + batch.num_rows
            first, end = (int(place) for place in np.searchsorted(offsets, [low, self._end]))
            if end > first:
                present = [name for name in wanted.names if name in batch.schema.names]
                rows = conform(batch.slice(first, end - first).select(present), wanted)
                self._digest.add(offsets[first:end], rows)
                self._tally.records += end - first
        return seen

    def _check_bounds(self, chunk: Chunk, bounds: Bounds | None) -> None:
        why = "cannot be read" if bounds is None else _disorder(chunk, bounds)
        if why:
            self._found(f"the ends of appends inside of the chunk {why}", offset=chunk.start)

    def _found(self, what: str, *, offset: int | None = None, file: str | None = None) -> None:
        name = self._topic.spec.name
        self._tally.findings.append(Finding(what, True, name, self._partition, offset, file))


def damage(error: Corrupt | apsw.Error) -> str:
    """In words: the first cause, for SQLite ends the transaction by itself and then complains of that too."""
    cause: BaseException = error
    while isinstance(cause.__context__, Corrupt | apsw.Error):
        cause = cause.__context__
    return cause.what if isinstance(cause, Corrupt) else f"the catalog cannot be read: {cause}"


def _bounds(catalog: apsw.Connection, chunk: Chunk) -> Bounds | None:
    try:
        return chunk_bounds(catalog, chunk)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
        return None


def _disorder(chunk: Chunk, bounds: Bounds) -> str | None:
    if not len(bounds.ends) or int(bounds.ends[-1]) != chunk.end:
        return f"do not end at its own end, {chunk.end}"
    for name, column in (("offsets", bounds.ends), ("numbers", bounds.appends), ("times", bounds.times)):
        if (np.diff(column) < 0).any():
            return f"go back in their {name}"
    if int(bounds.ends[0]) <= chunk.start:
        return f"begin before the chunk does, at {chunk.start}"
    if (int(bounds.appends[0]), int(bounds.appends[-1])) != (chunk.append, chunk.last_append):
        return f"are not those of appends {chunk.append} to {chunk.last_append}"
    return None


def _decoded(chunk: Chunk, content: pa.Buffer, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if chunk.file is None:
        yield ipc.read_record_batch(content, schema)
    elif chunk.file.endswith(".parquet"):
        import pyarrow.parquet as pq

        file = pq.ParquetFile(content)
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group).to_batches()
    else:
        yield ipc.open_file(content).get_batch(0)
