"""The frames lane's sink: rows of Spark's become chunks of the topic's partitions (step 2), then the append.

In append mode as a streaming sink. In update mode, which Spark does not give to sinks in Python, from `foreachBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec
from headwater.log.topic import Topic
from headwater.process.checkpoint import Checkpoint
from headwater.process.frames.attempt import ERROR, RECORD
from headwater.process.job import Job
from headwater.process.keyed.deadletters import SCHEMA as DEAD
from headwater.process.settled import settle
from headwater.process.sink import Staged, append, parts_of
from headwater.records import to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGED_BYTES = 64 * 1024 * 1024
"""So much is gathered before it is made a chunk."""


def stage_rows(job: Job, batches: Iterator[pa.RecordBatch]) -> Staged:
    log = job.log()
    spec = log.topic(job.topic)
    parts: list[Part] = []
    gathered: list[pa.RecordBatch] = []
    size = 0

    def put() -> None:
        rows = _typed(pa.Table.from_batches(gathered), spec)
        parts.extend(Topic(log, spec).parts(rows, producer=job.producer))
        gathered.clear()

    for batch in batches:
        good, dead = _apart(batch)
        if dead is not None:
            parts.append(log.stage(job.dead_topic, 0, dead, producer=job.producer))
        if good.num_rows:
            gathered.append(good)
            size += good.nbytes
        if size > STAGED_BYTES:
            put()
            size = 0
    if gathered:
        put()
    job.reached("2 after")
    return Staged(parts)


def _typed(rows: pa.Table, spec: TopicSpec) -> pa.RecordBatch:
    wanted = [name for name in spec.stored.names if name in rows.column_names]
    return to_batch(rows.select(wanted), spec.stored, topic=spec.name, required=spec.required)


def _apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    if ERROR not in batch.schema.names:
        return batch, None
    failed = pc.is_valid(batch.column(ERROR))
    good = batch.filter(pc.invert(failed)).drop_columns([ERROR, RECORD])
    bad = batch.filter(failed)
    if bad.num_rows == 0:
        return good, None
    told = {"record": bad.column(RECORD), "error": bad.column(ERROR)}
    columns = [
        told[field.name].cast(field.type) if field.name in told else pa.nulls(bad.num_rows, field.type)
        for field in DEAD
    ]
    return good, pa.RecordBatch.from_arrays(columns, schema=DEAD)


class RowsStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_rows(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _append(self._job, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what was staged is listed nowhere."""


class RowsWriter(DataSourceArrowWriter):
    """One batch of `foreachBatch`."""

    def __init__(self, job: Job, batch: int) -> None:
        self._job = job
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_rows(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _append(self._job, messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo: what was staged is listed nowhere."""


def _append(job: Job, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """The sequence is Spark's number of the batch, which may run again until Spark has marked it done (step 6)."""
    planned = Checkpoint(job.checkpoint, job.producer.name, job.begin)
    append(job, parts_of(messages), batch, planned.progress(batch), again=planned.end(batch - 1))


class RowsSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-log"

    def streamWriter(self, schema: Any, overwrite: bool) -> RowsStreamWriter:
        settle()
        return RowsStreamWriter(Job.load(self.options["job"]))

    def writer(self, schema: Any, overwrite: bool) -> RowsWriter:
        return RowsWriter(Job.load(self.options["job"]), int(self.options["batch"]))


def in_each_batch(job: Job) -> Any:
    """For `foreachBatch`."""
    dumped = job.dump()

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.format(RowsSink.name()).option("job", dumped).option("batch", str(batch)).mode("append").save()

    return write
