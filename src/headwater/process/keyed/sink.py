"""The keyed lane's sink: blobs become chunks of the topic's partitions (step 2), then `append_batch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.process.job import Job
from headwater.process.keyed.bucket import DEAD as DEAD_LETTERS
from headwater.process.keyed.deadletters import SCHEMA as DEAD
from headwater.process.keyed.packing import unpack
from headwater.process.settled import settle
from headwater.process.sink import Staged, append_batch, parts_of


class BlobWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        log, topic = self._job.log(), self._job.log().topic(self._job.topic)
        blobs: dict[tuple[int, int], list[bytes]] = {}
        for batch in iterator:
            columns = (batch.column(name).to_pylist() for name in ("port", "bucket", "data"))
            for port, partition, blob in zip(*columns, strict=True):
                blobs.setdefault((port, partition), []).append(blob)
        parts = []
        for (port, partition), packed in sorted(blobs.items()):
            name, stored = (self._job.dead_topic, DEAD) if port == DEAD_LETTERS else (topic.name, topic.stored)
            rows = unpack(packed).select(stored.names).cast(stored).combine_chunks()
            place = 0 if port == DEAD_LETTERS else partition
            for records in rows.to_batches():
                parts.append(log.stage(name, place, records, producer=self._job.producer))
        self._job.reached("2 after")
        return Staged(parts)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        append_batch(self._job, parts_of(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what was staged is listed nowhere."""


class BlobSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-blobs"

    def schema(self) -> str:
        return "bucket int, port int, data binary"

    def streamWriter(self, schema: Any, overwrite: bool) -> BlobWriter:
        settle()
        return BlobWriter(Job.load(self.options["job"]))
