"""The Spark sink: steps 2 to 5 of the protocol in docs/guarantees.md.

2  Tasks stage their rows: large ones as durable files that nothing lists, small ones in the message to the driver.
3  The driver appends all of them, with the progress, in one append: sequence = Spark's batch number.
4  The log answers a repeated batch with the first one's answer, and refuses one for other inputs.
5  The log refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.log.protocol import Part
from headwater.process.checkpoint import Checkpoint
from headwater.process.job import Job
from headwater.process.keyed.packing import unpack


@dataclass
class Staged(WriterCommitMessage):
    parts: list[Part]


class LogWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        log, topic = self._job.log(), self._job.log().topic(self._job.topic)
        blobs: dict[int, list[bytes]] = {}
        for batch in iterator:
            for partition, blob in zip(batch.column("bucket"), batch.column("data"), strict=True):
                blobs.setdefault(partition.as_py(), []).append(blob.as_py())
        parts = []
        for partition, packed in sorted(blobs.items()):
            rows = unpack(packed).select(topic.stored.names).cast(topic.stored).combine_chunks()
            for records in rows.to_batches():
                parts.append(log.stage(topic.name, partition, records, producer=self._job.producer))
        return Staged(parts)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [part for message in messages if isinstance(message, Staged) for part in message.parts]
        progress = Checkpoint(self._job.checkpoint).progress(batchId)
        log, producer = self._job.log(), self._job.producer
        log.append(parts, producer=producer, sequence=batchId, progress=progress)
        # Until Spark has marked this batch done (step 6) it may run again: upkeep leaves its inputs.
        log.pin(producer.name, progress.start, topics=self._job.inputs)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what was staged is listed nowhere."""


class LogSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-log"

    def schema(self) -> str:
        return "bucket int, data binary"

    def streamWriter(self, schema: Any, overwrite: bool) -> LogWriter:
        return LogWriter(Job.load(self.options["job"]))
