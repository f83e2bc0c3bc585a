"""The keyed lane's source: each input's changes, already filtered and projected, packed by bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition

from headwater.process.job import Job
from headwater.process.keyed.bucket import WATERMARK, pack_watermark, sent
from headwater.process.keyed.packing import bucket_labels
from headwater.process.lateness import admitted, watermark
from headwater.process.plan import Plan, Read
from headwater.process.source import Limits, LogReader, Task
from headwater.records import OFFSET, PARTITION

SCHEMA = "bucket int, port int, data binary"


class PackedReader(LogReader):
    def __init__(self, job: Job, limits: Limits) -> None:
        assert job.plan is not None
        super().__init__(job, job.inputs, limits)
        self._plan: Plan = job.plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        self.begun()
        labels = bucket_labels(self._plan.buckets) if self._plan.levels else range(self._plan.buckets)
        for read in self._plan.reads:
            batches = list(self._batches(read, partition))
            if not batches:
                continue
            rows = pa.Table.from_batches(batches)
            for send in read.sends:
                blobs = list(sent(send, rows, self._plan.buckets))
                if blobs:
                    yield _blobs([labels[blob.bucket] for blob in blobs], blobs[0].port, [blob.data for blob in blobs])
        if partition.first and self._job.lateness and self._plan.levels:
            passed = watermark(self._job, partition.end)
            if passed is not None:
                yield _blobs(list(labels), WATERMARK, [pack_watermark(passed)] * len(labels))

    def _batches(self, read: Read, task: Task) -> Iterator[pa.RecordBatch]:
        spec = self._log.topic(read.topic)
        timed = [spec.time] if spec.time and read.topic in dict(self._job.lateness) else []
        wanted = list(dict.fromkeys([*read.columns, *timed]))
        for part in task.ranges:
            if part.topic != read.topic:
                continue
            scanned = self._log.scan(
                part.topic, part.partition, part.start, part.end, columns=wanted, metadata=read.metadata
            )
            for batch in admitted(self._job, spec, part, scanned):
                yield batch.select([*read.columns, *([PARTITION, OFFSET] if read.metadata else [])])


def _blobs(buckets: list[int], port: int, blobs: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(buckets, pa.int32()),
            pa.array(np.full(len(buckets), port, np.int32)),
            pa.array(blobs, pa.binary()),
        ],
        names=["bucket", "port", "data"],
    )


class PackedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-packed"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> PackedReader:
        return PackedReader(Job.load(self.options["job"]), Limits.of(self.options))
