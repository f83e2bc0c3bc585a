"""The rows of a table as its topic holds them: of each key the last record, if that says that the row is there.

Records of a key are in one partition, in the order of the source, so this is true of weights and of upserts alike.
Two passes, so that only keys are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.records import DELETED, OFFSET, WEIGHT

Offsets = npt.NDArray[np.int64]


def live_offsets(log: Log, spec: TopicSpec, partition: int, end: int) -> Offsets:
    """Of the rows that are there at `end`, where their records are, in order."""
    mark = WEIGHT if spec.weighted else DELETED
    start = log.extents(spec.name)[partition].start
    scanned = log.scan(spec.name, partition, start, end, columns=[*spec.key, mark], metadata=True)
    batches = [batch.select([*spec.key, mark, OFFSET]) for batch in scanned]
    if not batches:
        return np.zeros(0, np.int64)
    records = pa.Table.from_batches(batches)
    last = records.group_by(list(spec.key)).aggregate([(OFFSET, "max")])[f"{OFFSET}_max"].combine_chunks()
    there = pc.greater(records[mark], 0) if spec.weighted else pc.invert(records[mark])
    kept = records.filter(there)[OFFSET].to_numpy()
    found: Offsets = np.intersect1d(last.to_numpy(), kept, assume_unique=True)
    return found


def removals(log: Log, spec: TopicSpec, partition: int, end: int) -> Iterator[pa.RecordBatch]:
    """Records that take away every row that is there at `end`."""
    live = live_offsets(log, spec, partition, end)
    if not len(live):
        return
    columns = None if spec.weighted else list(spec.key)
    for batch in log.scan(spec.name, partition, int(live[0]), end, columns=columns, metadata=True):
        offsets = batch.column(OFFSET).to_numpy()
        places = np.searchsorted(live, offsets)
        chosen = live[np.minimum(places, len(live) - 1)] == offsets
        if chosen.any():
            yield removal(spec, batch.filter(pa.array(chosen)))


def rows_in(log: Log, spec: TopicSpec, within: Callable[[pa.RecordBatch], pa.Array]) -> pa.Table:
    """The rows that are there now and that `within` chooses."""
    ends = log.snapshot([spec.name]).position
    tables = [spec.schema.empty_table()]
    for partition in range(spec.partitions):
        end = ends.offset(spec.name, partition)
        live = live_offsets(log, spec, partition, end)
        if not len(live):
            continue
        for batch in log.scan(spec.name, partition, int(live[0]), end, metadata=True):
            chosen = batch.filter(pa.array(np.isin(batch.column(OFFSET).to_numpy(), live)))
            chosen = chosen.filter(within(chosen))
            tables.append(pa.Table.from_batches([chosen.select(spec.schema.names)]))
    return pa.concat_tables(tables)


def removal(spec: TopicSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records that take these rows away: the same at weight -1, or tombstones, which have only the key."""
    count = rows.num_rows
    columns = [
        rows.column(field.name) if spec.weighted or field.name in spec.key else pa.nulls(count, field.type)
        for field in spec.schema
    ]
    mark = pa.repeat(pa.scalar(-1, pa.int64()) if spec.weighted else pa.scalar(True), count)
    return pa.RecordBatch.from_arrays([*columns, mark], schema=spec.stored)
