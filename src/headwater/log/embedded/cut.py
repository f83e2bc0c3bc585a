"""Cutting a copy of a log back to an append boundary: afterwards it is as it was right after that append.

    1  The boundary: the last append at which no partition that the position names is beyond it.
    2  In each partition, chunks of later appends go; one that upkeep rolled over the boundary is written anew, shorter.
    3  Ends, and with them commits, pins and queues, go back; so do versions of keys and what producers appended last.
    4  Later appends go. Numbers go on from the boundary.

Only ever done to a copy that nobody else has open. What stays as it is now: topics, their schemas and settings, epochs.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import apsw
import numpy as np
import pyarrow as pa

from headwater.errors import BadPartition, BadPosition, TopicNotFound
from headwater.log.embedded import chunks
from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.read import ends_at, read_chunk
from headwater.log.embedded.rows import (
    Chunk,
    KnownTopic,
    chunk_bounds,
    chunk_data,
    extents_of,
    load_topics,
    newest_append,
    select_chunks,
)
from headwater.log.position import Position
from headwater.log.versions import key_bytes
from headwater.records import OFFSET


def boundary(catalog: apsw.Connection, at: Position) -> int:
    """Step 1. Partitions that the position does not name do not bind it: an append's own token names only its own."""
    known = {topic.spec.name: topic for topic in load_topics(catalog)}
    wanted = at.as_dict()
    for name, by in wanted.items():
        if name not in known:
            raise TopicNotFound(topic=name, known=known)
        for partition in by:
            if partition >= known[name].spec.partitions:
                raise BadPartition(topic=name, partition=partition, partitions=known[name].spec.partitions)

    def fits(number: int) -> bool:
        return all(
            ends[partition] <= offset
            for name, by in wanted.items()
            for ends in [ends_at(catalog, known[name], number)]
            for partition, offset in by.items()
        )

    low, high = 0, newest_append(catalog)
    if not fits(low):
        raise BadPosition(text=str(at), why="what was appended up to there is no longer in the log")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    for name, topic in known.items():
        ends = ends_at(catalog, topic, low)
        for partition, extent in extents_of(catalog, topic).items():
            if ends[partition] < extent.horizon:
                why = f"topic {name!r}, partition {partition} has since been compacted up to {extent.horizon}"
                raise BadPosition(text=str(at), why=f"{why}, what it was at {ends[partition]} is no longer known")
    return low


class Cut:
    """`number` is a boundary; chunk files, of `disk`, are only added: those no longer listed are the caller's."""

    def __init__(self, catalog: Catalog, disk: Disk, number: int) -> None:
        self._catalog = catalog
        self._disk = disk
        self._number = number

    def run(self) -> None:
        with self._catalog.read() as catalog:
            topics = list(load_topics(catalog))
            ends = {topic.id: ends_at(catalog, topic, self._number) for topic in topics}
            at = self._time(catalog, topics)
        with self._catalog.write() as catalog:
            for topic in topics:
                for partition, end in ends[topic.id].items():
                    self._cut_partition(catalog, topic, partition, end)
            self._cut_appends(catalog, at)

    def _time(self, catalog: apsw.Connection, topics: list[KnownTopic]) -> int:
        """When the last append up to the boundary was made: its own row may have been dropped by a roll-up."""
        last: Any = catalog.execute("SELECT max(appended_at) FROM appends WHERE number <= ?", (self._number,)).get
        times = [last or 0]
        for topic in topics:
            for partition in range(topic.spec.partitions):
                given = (partition, self._number)
                where, order = "partition = ? AND append <= ?", 'append DESC, "end" DESC'
                for chunk in select_chunks(catalog, topic.id, where, given, order=order, limit=1):
                    times.append(int(self._kept(catalog, chunk).times[-1]))
        return max(times)

    def _kept(self, catalog: apsw.Connection, chunk: Chunk) -> Bounds:
        bounds = chunk_bounds(catalog, chunk)
        count = int(np.searchsorted(bounds.appends, self._number, "right"))
        return Bounds(bounds.appends[:count], bounds.ends[:count], bounds.times[:count])

    def _cut_partition(self, catalog: apsw.Connection, topic: KnownTopic, partition: int, end: int) -> None:
        later = select_chunks(catalog, topic.id, "partition = ? AND last_append > ?", (partition, self._number))
        latest: Any = catalog.execute(
            "SELECT max_time FROM ends WHERE topic = ? AND partition = ?", (topic.id, partition)
        ).get
        for chunk in reversed(later):
            latest = chunk.time_before
            if topic.spec.versioned:
                self._lower_versions(catalog, topic, chunk, end)
            if chunk.append <= self._number:
                of_rest = self._shorten(catalog, topic, chunk, end)
                latest = max((time for time in (latest, of_rest) if time is not None), default=None)
            catalog.execute("DELETE FROM chunks WHERE id = ?", (chunk.id,))
        catalog.execute(
            'UPDATE ends SET "end" = ?, start = min(start, ?), max_time = ? WHERE topic = ? AND partition = ?',
            (end, end, latest, topic.id, partition),
        )
        for statement in _BACK_TO_THE_END:
            catalog.execute(statement, {"topic": topic.id, "partition": partition, "end": end})

    def _records(self, catalog: apsw.Connection, topic: KnownTopic, chunk: Chunk, low: int, high: int) -> pa.Table:
        """The chunk's records at offsets low <= o < high, as they are stored."""
        data = chunk_data(catalog, chunk) if chunk.file is None else None
        found = []
        for offsets, batch in read_chunk(self._disk, self._catalog.path, topic, chunk, data):
            first, end = (int(place) for place in np.searchsorted(offsets, [low, high]))
            found.append(batch.slice(first, end - first))
        return pa.Table.from_batches(found)

    def _shorten(self, catalog: apsw.Connection, topic: KnownTopic, chunk: Chunk, end: int) -> int | None:
        """List what the chunk has up to the boundary as a chunk of its own; returns its greatest event time."""
        table = self._records(catalog, topic, chunk, chunk.start, end)
        if chunk.sparse and table.num_rows == end - chunk.start:
            table = table.drop_columns([OFFSET])
        table = table.combine_chunks()
        file, data, content = None, None, chunks.to_message_or_parquet(table.schema, [table])
        if isinstance(content, bytes):
            data = content
        else:
            file = chunks.new_name(topic.spec.name, chunk.partition, "backup-0", "parquet")
            self._disk.write(file, content)
        bounds = self._kept(catalog, chunk)
        row = (
            topic.id, chunk.partition, chunk.start, end, table.num_rows, chunk.append, int(bounds.appends[-1]),
            chunk.schema, chunks.crc(content), len(content), chunk.appended_at, chunk.time_before, file, data,
            bounds.encode(),
        )  # fmt: skip
        catalog.execute(
            'INSERT INTO chunks(topic, partition, start, "end", rows, append, last_append, schema, crc, size,'
            " appended_at, time_before, file, data, bounds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return chunks.max_time(table, topic.spec.time)

    def _lower_versions(self, catalog: apsw.Connection, topic: KnownTopic, chunk: Chunk, end: int) -> None:
        """A key's version counts its records: those that go are counted off."""
        going = self._records(catalog, topic, chunk, end, chunk.end)
        columns = [going[name].to_pylist() for name in topic.spec.key]
        keys = Counter(key_bytes(key) for key in zip(*columns, strict=True))
        catalog.executemany(
            "UPDATE versions SET version = version - ? WHERE topic = ? AND key = ?",
            [(count, topic.id, key) for key, count in keys.items()],
        )
        catalog.execute("DELETE FROM versions WHERE topic = ? AND version <= 0", (topic.id,))

    def _cut_appends(self, catalog: apsw.Connection, at: int) -> None:
        number = self._number
        catalog.execute("DELETE FROM appends WHERE number > ?", (number,))
        if number and newest_append(catalog) < number:
            catalog.execute("INSERT INTO appends(number, appended_at) VALUES (?, ?)", (number, at))
        catalog.execute(
            "UPDATE producers SET last_append = (SELECT max(number) FROM appends WHERE producer = name)"
            " WHERE last_append > ?",
            (number,),
        )


_BACK_TO_THE_END = (
    'UPDATE committed SET "offset" = :end WHERE topic = :topic AND partition = :partition AND "offset" > :end',
    'UPDATE pins SET "offset" = :end WHERE topic = :topic AND partition = :partition AND "offset" > :end',
    'UPDATE cursors SET "offset" = :end WHERE queue IN (SELECT name FROM queues WHERE topic = :topic)'
    ' AND partition = :partition AND "offset" > :end',
    "DELETE FROM deliveries WHERE queue IN (SELECT name FROM queues WHERE topic = :topic)"
    ' AND partition = :partition AND "offset" >= :end',
)
