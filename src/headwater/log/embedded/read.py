"""Scanning a partition: from chunks, wherever and however they rest, to record batches of the newest schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apsw
import numpy as np
import pyarrow as pa

from headwater.errors import Compacted, Corrupt, Missed, TopicNotFound
from headwater.log.embedded import chunks, topics
from headwater.log.embedded.bounds import Bounds, Ints
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.rows import (
    Chunk,
    KnownTopic,
    Listed,
    chunk_bounds,
    extents_of,
    page_of,
    select_chunks,
    standing_of,
)
from headwater.log.evolution import conform
from headwater.records import APPENDED_AT, OFFSET, PARTITION, TIMESTAMP

PAGE_CHUNKS = 512
PAGE_BYTES = 4 * 1024 * 1024
"""A page of the listing: so many chunks, so many inlined bytes. Between pages upkeep may swap what it likes; but a sum
of weights that has taken the place of records of which some were read already cannot be gone on with."""


class Scan:
    """Offsets start <= o < end of a partition. It goes on by offset, so chunks swapped on the way do not matter, but in
    a weighted topic that is compacted past where the scan stands: that is told (`Compacted`), and it begins anew."""

    def __init__(self, catalog: Catalog, disk: Disk, topic: KnownTopic, partition: int, start: int, end: int) -> None:
        self._catalog = catalog
        self._disk = disk
        self._topic = topic
        self._partition = partition
        self._next = start
        self._end = end
        self._horizon: int | None = None
        """As it was when the scan began."""

    def batches(self, columns: Sequence[str] | None, *, metadata: bool) -> Iterator[pa.RecordBatch]:
        wanted = self._topic.stored(self._topic.version)
        if columns is not None:
            wanted = pa.schema([wanted.field(name) for name in columns])
        while self._next < self._end:
            page = self._page(bounds=metadata)
            if not page:
                return
            for chunk, data, bounds in page:
                when = _bounds(chunk, bounds) if metadata else None
                for offset, batch in self._records(chunk, data):
                    yield self._shaped(batch, offset, wanted, when)
                self._next = max(self._next, chunk.end)

    def _page(self, *, bounds: bool) -> list[Listed]:
        with self._catalog.read() as catalog:
            standing = standing_of(catalog, self._topic, self._partition)
            if standing is None or standing[2] != self._topic.version:
                self._renew(catalog)
            assert standing is not None
            self._check(start=standing[0], horizon=standing[1])
            return page_of(
                catalog,
                self._topic,
                self._partition,
                self._next,
                self._end,
                most=PAGE_CHUNKS,
                most_bytes=PAGE_BYTES,
                bounds=bounds,
            )

    def _renew(self, catalog: apsw.Connection) -> None:
        """Chunks that are listed now may have a schema that was not there when the scan began. Another topic that has
        the name by now is none of this scan's."""
        known = topics.find(catalog, self._topic.spec.name)
        if known.id != self._topic.id:
            raise TopicNotFound(topic=known.spec.name)
        self._topic = known

    def _check(self, *, start: int, horizon: int) -> None:
        name = self._topic.spec.name
        if self._next < start and not (self._next == 0 and horizon >= start):
            raise Missed(topic=name, partition=self._partition, asked=self._next, first=start)
        begins = self._horizon is None
        moved = not begins and self._topic.spec.weighted and horizon != self._horizon
        if (begins or moved) and 0 < self._next < horizon:
            raise Compacted(topic=name, partition=self._partition, asked=self._next, horizon=horizon)
        self._horizon = horizon

    def _records(self, chunk: Chunk, data: bytes | None) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        """The records of a chunk that are in the range, with their offsets, a batch at a time."""
        whole = self._next <= chunk.start and chunk.end <= self._end
        for offsets, batch in read_chunk(self._disk, self._catalog.path, self._topic, chunk, data):
            low, high = 0, batch.num_rows
            if not whole:
                low, high = (int(place) for place in np.searchsorted(offsets, [self._next, self._end]))
            if high > low:
                yield offsets[low:high], batch.slice(low, high - low)

    def _shaped(self, batch: pa.RecordBatch, offsets: Ints, wanted: pa.Schema, bounds: Bounds | None) -> pa.RecordBatch:
        there = batch.schema.names
        batch = conform(batch.select([name for name in wanted.names if name in there]), wanted)
        if bounds is None:
            return batch
        rows = batch.num_rows
        extra = {
            PARTITION: pa.array(np.full(rows, self._partition, np.int32)),
            OFFSET: pa.array(offsets, pa.int64()),
            APPENDED_AT: pa.array(bounds.times_of(offsets)).cast(TIMESTAMP),
        }
        for name, column in extra.items():
            batch = batch.append_column(name, column)
        return batch


def _bounds(chunk: Chunk, encoded: bytes | None) -> Bounds:
    return Bounds.decode(encoded) if encoded is not None else Bounds.of_one(chunk.append, chunk.end, chunk.appended_at)


def read_chunk(
    disk: Disk, catalog: Path, topic: KnownTopic, chunk: Chunk, data: bytes | None
) -> Iterator[tuple[Ints, pa.RecordBatch]]:
    """All records of a chunk, in the newest schema, with their offsets, a batch at a time."""
    where = f"{topic.spec.name!r}, partition {chunk.partition}, offset {chunk.start}"
    if data is not None:
        schema = topic.stored(chunk.schema)
        if chunk.sparse:
            schema = schema.append(pa.field(OFFSET, pa.int64()))
        read: Iterator[pa.RecordBatch] = iter(
            [chunks.read_message(data, chunk.crc, schema, catalog=catalog, where=where)]
        )
    else:
        assert chunk.file is not None
        read = chunks.read_file(disk, chunk.file, chunk.crc)
    first, seen = chunk.start, 0
    for batch in read:
        dense = np.arange(first, first + batch.num_rows)
        yield (batch.column(OFFSET).to_numpy() if chunk.sparse else dense), batch
        first, seen = first + batch.num_rows, seen + batch.num_rows
    if seen != chunk.rows:
        raise Corrupt(what=f"the chunk of {where} ({seen} records instead of {chunk.rows})", file=str(chunk.file))


def ends_at(catalog: apsw.Connection, topic: KnownTopic, number: int) -> dict[int, int]:
    """Where each partition ended right after an append."""
    ends = {}
    for partition in range(topic.spec.partitions):
        last = _last_chunk(catalog, topic, partition, "append <= ?", number)
        if last is None:
            ends[partition] = _first_listed(catalog, topic, partition)
        elif last.last_append <= number:
            ends[partition] = last.end
        else:
            ends[partition] = chunk_bounds(catalog, last).end_at(number) or last.start
    return ends


def first_beyond(catalog: apsw.Connection, topic: KnownTopic, ends: Mapping[int, int]) -> int | None:
    """The number of the first append that has records at these offsets or above them; None if none has."""
    found = []
    for partition in range(topic.spec.partitions):
        offset = ends.get(partition, 0)
        given = (partition, offset)
        for chunk in select_chunks(catalog, topic.id, 'partition = ? AND "end" > ?', given, limit=1):
            bounds = chunk_bounds(catalog, chunk)
            found.append(int(bounds.appends[np.searchsorted(bounds.ends, offset, "right")]))
    return min(found, default=None)


def offsets_from(catalog: apsw.Connection, topic: KnownTopic, time_us: int) -> dict[int, int]:
    """The offset of the first record appended at that time or later; the end, if there is none."""
    found = {}
    for partition, extent in extents_of(catalog, topic).items():
        earlier = _last_chunk(catalog, topic, partition, "appended_at < ?", time_us)
        if earlier is None:
            found[partition] = extent.start
            continue
        bounds = chunk_bounds(catalog, earlier)
        place = int(np.searchsorted(bounds.times, time_us))
        found[partition] = max(extent.start, int(bounds.ends[place - 1]) if place else earlier.start)
    return found


def _last_chunk(catalog: apsw.Connection, topic: KnownTopic, partition: int, where: str, value: int) -> Chunk | None:
    given = (partition, value)
    order = 'append DESC, "end" DESC'
    found = select_chunks(catalog, topic.id, f"partition = ? AND {where}", given, order=order, limit=1)
    return found[0] if found else None


def _first_listed(catalog: apsw.Connection, topic: KnownTopic, partition: int) -> int:
    """Before the first append that is still listed: where what was removed ended, or 0."""
    found = select_chunks(catalog, topic.id, "partition = ?", (partition,), limit=1)
    return found[0].start if found else extents_of(catalog, topic)[partition].end


def time_before(
    catalog: apsw.Connection, topic: KnownTopic, partition: int, offset: int
) -> tuple[int | None, int | None]:
    """The greatest event time before the chunk that has the offset, and where that chunk begins if it is not there."""
    found = select_chunks(catalog, topic.id, 'partition = ? AND "end" > ?', (partition, offset), limit=1)
    if not found:
        row = catalog.execute(
            "SELECT max_time FROM ends WHERE topic = ? AND partition = ?", (topic.id, partition)
        ).fetchone()
        return (row[0] if row else None), None
    return found[0].time_before, found[0].start if found[0].start < offset else None


def rows_of_bytes(catalog: apsw.Connection, topics: Sequence[int], after: int, most: int) -> int:
    """About how many of the rows to come take so many bytes, going by those that came after an append."""
    marks = ", ".join("?" * len(topics))
    rows, size = catalog.execute(
        f"SELECT coalesce(sum(rows), 0), coalesce(sum(size), 0) FROM chunks WHERE topic IN ({marks})"
        " AND last_append > ?",
        (*topics, after),
    ).fetchone() or (0, 0)
    return max(1, int(most * rows / size)) if size else most
