"""The frames lane's source: the records of one topic as rows of Spark's, those that come too late left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from headwater.log.spec import TopicSpec
from headwater.process.frames.types import arrow_schema, spark_schema
from headwater.process.job import Job
from headwater.process.lateness import beyond, event_times, threshold
from headwater.process.source import Limits, LogReader, Task

BATCH_ROWS = 64 * 1024
"""Spark takes a batch as a whole into memory off the heap."""


class RowsReader(LogReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        self.begun()
        log = self._log
        (topic,) = self._topics
        spec = log.topic(topic)
        travelling = travelling_schema(spec)
        lateness = dict(self._job.lateness).get(topic)
        bound = threshold(log, spec, partition.start, lateness) if lateness is not None else None
        for part in partition.ranges:
            scanned = log.scan(topic, part.partition, part.start, part.end, columns=spec.schema.names)
            for batch in scanned if bound is None else _in_time(scanned, spec, bound):
                yield from cut(batch, travelling)


def _in_time(batches: Iterable[pa.RecordBatch], spec: TopicSpec, bound: int) -> Iterator[pa.RecordBatch]:
    assert spec.time is not None
    for batch in batches:
        late_by = beyond(event_times(batch, spec.time), bound)
        yield batch.filter(pa.array(late_by == 0)) if late_by.any() else batch


def travelling_schema(spec: TopicSpec) -> pa.Schema:
    return arrow_schema(spark_schema(spec.schema))


def cut(batch: pa.RecordBatch, travelling: pa.Schema) -> Iterator[pa.RecordBatch]:
    """In the types in which records travel to Spark, in pieces that Spark can hold."""
    if batch.schema != travelling:
        batch = pa.Table.from_batches([batch]).cast(travelling).combine_chunks().to_batches()[0]
    for first in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(first, BATCH_ROWS)


class RowsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-rows"

    def schema(self) -> StructType:
        return spark_schema(Job.load(self.options["job"]).log().topic(self.options["topic"]).schema)

    def streamReader(self, schema: StructType) -> RowsReader:
        return RowsReader(Job.load(self.options["job"]), [self.options["topic"]], Limits.of(self.options))
