"""The Spark source over the log: each input's changes, already filtered and projected, packed by bucket.

Offsets are append boundaries (`checkpoint.to_offset`), so a batch never ends inside an append.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headwater.log.protocol import Log
from headwater.process import duck
from headwater.process.checkpoint import START, from_offset, to_offset
from headwater.process.job import Job
from headwater.process.keyed.packing import bucket_labels, pack_by_key
from headwater.process.plan import CHANGES

SCHEMA = "bucket int, port int, data binary"
IDLE_S = 0.1
"""How long `latestOffset` waits for a change before it says that there is none: what an idle query costs."""
TASK_ROWS = 100_000
"""A batch with fewer rows is read by one task: starting a second one would cost more."""


@dataclass(frozen=True)
class Range:
    port: int
    partition: int
    start: int
    end: int


class Task(InputPartition):
    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class PackedReader(DataSourceStreamReader):
    def __init__(self, job: Job, max_rows: int, cores: int) -> None:
        self._job = job
        self._max_rows = max_rows
        self._cores = cores

    @property
    def _log(self) -> Log:
        return self._job.log()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the limit is ours, in rows, and ends on an append

    def initialOffset(self) -> dict[str, object]:
        return to_offset(START)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        self._log.check(self._job.producer)
        after = from_offset(start)
        self._log.wait(after.number, IDLE_S)
        snapshot = self._log.snapshot(self._job.inputs, after=after, max_rows=self._max_rows)
        return start if snapshot.position == after.position else to_offset(snapshot)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        first, last = from_offset(start).position, from_offset(end).position
        ranges = []
        for port, read in enumerate(self._job.plan.reads):
            for partition in range(self._log.topic(read.topic).partitions):
                low, high = first.offset(read.topic, partition), last.offset(read.topic, partition)
                if high > low:
                    ranges.append(Range(port, partition, low, high))
        return list(_tasks(ranges, self._cores))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        plan, log = self._job.plan, self._log
        labels = bucket_labels(plan.buckets)
        for port, read in enumerate(plan.reads):
            batches = [
                batch
                for part in partition.ranges
                if part.port == port
                for batch in log.scan(
                    read.topic, part.partition, part.start, part.end, columns=read.columns, metadata=read.metadata
                )
            ]
            if not batches:
                continue
            rows = duck.run(read.sql, **{CHANGES: pa.Table.from_batches(batches)})
            packed = list(pack_by_key(rows, read.key, plan.buckets))
            if packed:
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([labels[bucket] for bucket, _ in packed], pa.int32()),
                        pa.array([port] * len(packed), pa.int32()),
                        pa.array([blob for _, blob in packed], pa.binary()),
                    ],
                    names=["bucket", "port", "data"],
                )


def _tasks(ranges: list[Range], cores: int) -> Iterator[InputPartition]:
    """One task for a little, `cores` tasks of about the same size for a lot."""
    total = sum(part.end - part.start for part in ranges)
    if total <= TASK_ROWS:
        yield Task(tuple(ranges))
        return
    share = -(-total // cores)
    current: list[Range] = []
    room = share
    for part in ranges:
        start = part.start
        while start < part.end:
            end = min(part.end, start + room)
            current.append(Range(part.port, part.partition, start, end))
            room -= end - start
            start = end
            if room == 0:
                yield Task(tuple(current))
                current, room = [], share
    if current:
        yield Task(tuple(current))


class PackedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-packed"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> PackedReader:
        return PackedReader(Job.load(self.options["job"]), int(self.options["maxrows"]), int(self.options["cores"]))
