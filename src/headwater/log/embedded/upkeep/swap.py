"""The one way in which upkeep changes a log: some neighbouring chunks out, others in, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import pyarrow as pa

from headwater.log.embedded import chunks
from headwater.log.embedded.bounds import Bounds, Ints
from headwater.log.embedded.read import read_chunk
from headwater.log.embedded.rows import Chunk, KnownTopic, Swapped, chunk_bounds, chunk_data
from headwater.log.evolution import conform
from headwater.records import OFFSET

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


@dataclass(frozen=True)
class Loaded:
    """Neighbouring chunks read together: the records in the newest schema, their offsets, and where appends end."""

    chunks: tuple[Chunk, ...]
    records: pa.Table
    offsets: Ints
    bounds: Bounds


def load(log: EmbeddedLog, topic: KnownTopic, some: Sequence[Chunk]) -> Loaded:
    """Raises `Swapped` if one of them is no longer listed."""
    with log.catalog.read() as catalog:
        inlined = {chunk.id: chunk_data(catalog, chunk) for chunk in some if chunk.file is None}
        if None in inlined.values():
            raise Swapped
        bounds = Bounds.joined([chunk_bounds(catalog, chunk) for chunk in some])
    batches, offsets = [], []
    for chunk in some:
        for own, batch in read_chunk(log.disk, log.catalog.path, topic, chunk, inlined.get(chunk.id)):
            offsets.append(own)
            batches.append(conform(batch, topic.spec.stored))
    table = pa.Table.from_batches(batches, topic.spec.stored)
    return Loaded(tuple(some), table, np.concatenate([np.empty(0, np.int64), *offsets]), bounds)


@dataclass(frozen=True)
class NewChunk:
    """A chunk that upkeep has written: its file is durable, no row lists it yet."""

    row: tuple[Any, ...]
    file: str | None


def write(log: EmbeddedLog, topic: KnownTopic, loaded: Loaded, keep: Any | None = None) -> NewChunk:
    """One chunk in place of the loaded ones, with all of their records or those where `keep` is true."""
    records, offsets = loaded.records, loaded.offsets
    if keep is not None:
        records, offsets = records.filter(pa.array(keep)), offsets[keep]
    return write_records(log, topic, loaded, records, offsets)


def write_records(log: EmbeddedLog, topic: KnownTopic, loaded: Loaded, records: pa.Table, offsets: Ints) -> NewChunk:
    first, last = loaded.chunks[0], loaded.chunks[-1]
    if records.num_rows < last.end - first.start:
        records = records.append_column(OFFSET, pa.array(offsets, pa.int64()))
    records = records.combine_chunks()
    file, data = None, None
    if records.nbytes <= chunks.INLINE_BYTES:
        batches = records.to_batches()
        data = chunks.to_message(batches[0] if batches else _empty(records.schema))
        crc, size = chunks.crc(data), len(data)
    else:
        content = chunks.to_parquet(records)
        crc, size = chunks.crc(content), content.size
        file = chunks.new_name(topic.spec.name, first.partition, "upkeep-0", "parquet")
        log.disk.write(file, content)
    row = (
        topic.id, first.partition, first.start, last.end, records.num_rows, first.append, last.last_append,
        topic.version, crc, size, first.appended_at, first.time_before, file, data, loaded.bounds.encode(),
    )  # fmt: skip
    return NewChunk(row, file)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def swap_in(catalog: apsw.Connection, old: Sequence[Chunk], new: Sequence[NewChunk], *, now: int) -> bool:
    """True if done; False if some of the old chunks are no longer listed: somebody else was faster."""
    ids = [chunk.id for chunk in old]
    marks = ", ".join("?" * len(ids))
    if int(catalog.execute(f"SELECT count(*) FROM chunks WHERE id IN ({marks})", ids).get) != len(ids):
        return False
    catalog.execute(
        f"INSERT OR IGNORE INTO garbage SELECT file, ? FROM chunks WHERE id IN ({marks}) AND file IS NOT NULL",
        (now, *ids),
    )
    catalog.execute(f"DELETE FROM chunks WHERE id IN ({marks})", ids)
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
