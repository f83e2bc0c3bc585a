"""Reading chunks a slice at a time, and writing others in their place, in bounded memory.

New chunks take over what the old ones say of appends: `bounds`, and the greatest event time before them. A chunk may
end inside of an append, which is then in two chunks: readers go by the ends of appends, not of chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Corrupt
from headwater.log.embedded import chunks
from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.read import read_chunk
from headwater.log.embedded.rows import Chunk, KnownTopic, Swapped, chunk_bounds, chunk_data, is_listed
from headwater.log.embedded.upkeep.swap import NewChunk
from headwater.log.evolution import conform
from headwater.records import OFFSET

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

SLICE_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 8 * 1024 * 1024
"""Records of so many bytes, as Arrow has them in memory, become one chunk."""


def slices(log: EmbeddedLog, topic: KnownTopic, chunk: Chunk) -> Iterator[pa.Table]:
    """The records of a chunk in the newest schema, with their `_offset`, some at a time."""
    with log.catalog.read() as catalog:
        data = chunk_data(catalog, chunk) if chunk.file is None else None
    if chunk.file is None and data is None:
        raise Swapped
    try:
        for offsets, batch in read_chunk(log.disk, log.catalog.path, topic, chunk, data):
            step = max(1, batch.num_rows * SLICE_BYTES // max(1, batch.nbytes))
            for first in range(0, batch.num_rows, step):
                some = conform(batch.slice(first, step), topic.spec.stored)
                own = pa.array(offsets[first : first + step], pa.int64())
                yield pa.Table.from_batches([some]).append_column(OFFSET, own)
    except Corrupt:
        with log.catalog.read() as catalog:
            if not is_listed(catalog, chunk):
                raise Swapped from None
        raise
    finally:
        if chunk.file is not None:  # what upkeep has read is about to be replaced
            chunks.let_go(log.disk, chunk.file, chunk.crc)


class Rewriting:
    """Writes what is to stand in place of some neighbouring chunks. Records come with `_offset`, ascending."""

    def __init__(self, log: EmbeddedLog, topic: KnownTopic, old: Sequence[Chunk]) -> None:
        self._log = log
        self._topic = topic
        self._old = old
        with log.catalog.read() as catalog:
            self._bounds = Bounds.joined([chunk_bounds(catalog, chunk) for chunk in old])
        self._start = old[0].start
        self._time = old[0].time_before
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._written: list[NewChunk] = []

    def add(self, records: pa.Table) -> None:
        step = max(1, records.num_rows * SLICE_BYTES // max(1, records.nbytes))
        for first in range(0, records.num_rows, step):
            if self._bytes >= PIECE_BYTES:  # only now: the last piece goes on to the end of the old chunks
                self._write(self._waiting[-1][OFFSET][-1].as_py() + 1)
            some = records.slice(first, step)
            self._waiting.append(some)
            self._bytes += some.nbytes

    def finish(self) -> list[NewChunk]:
        self._write(self._old[-1].end)
        return self._written

    def discard(self) -> None:
        for chunk in self._written:
            if chunk.file is not None:
                self._log.disk.remove(chunk.file)

    def _write(self, end: int) -> None:
        before = [chunk.time_before for chunk in self._old if chunk.start <= self._start]
        self._time = _later(self._time, before[-1])
        rows = sum(part.num_rows for part in self._waiting)
        bounds = self._bounds.between(self._start, end)
        place = Place(self._old[0].partition, self._start, end, rows, bounds, self._time)
        self._written.append(write_chunk(self._log, self._topic, place, self._waiting))
        for part in self._waiting:
            self._time = _later(self._time, chunks.max_time(part, self._topic.spec.time))
        self._start, self._waiting, self._bytes = end, [], 0
        pa.default_memory_pool().release_unused()  # else it keeps several times what is in use


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


@dataclass(frozen=True)
class Place:
    """Where a chunk to be written stands: so many records at offsets start <= o < end."""

    partition: int
    start: int
    end: int
    rows: int
    bounds: Bounds
    time_before: int | None


def write_chunk(log: EmbeddedLog, topic: KnownTopic, place: Place, records: Iterable[pa.Table]) -> NewChunk:
    """A chunk of these records, which come with `_offset`: to be inlined, or a file that is durable already."""
    stored = topic.spec.stored
    if place.rows < place.end - place.start:
        stored = stored.append(pa.field(OFFSET, pa.int64()))
    file, data = None, None
    content = chunks.to_message_or_parquet(stored, (part.select(stored.names) for part in records))
    if isinstance(content, bytes):
        data = content
    else:
        file = chunks.new_name(topic.spec.name, place.partition, "upkeep-0", "parquet")
        log.disk.write(file, content)
    bounds = place.bounds
    row: tuple[Any, ...] = (
        topic.id, place.partition, place.start, place.end, place.rows, int(bounds.appends[0]), int(bounds.appends[-1]),
        topic.version, chunks.crc(content), len(content), int(bounds.times[0]), place.time_before, file, data,
        bounds.encode(),
    )  # fmt: skip
    return NewChunk(row, file)
