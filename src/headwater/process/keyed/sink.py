"""The keyed lane's sink: blobs become chunks of the topic's partitions (step 2), then each view's append."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.log.protocol import Part
from headwater.process.blame import blamed_on
from headwater.process.job import Job, load_jobs
from headwater.process.keyed import parcels
from headwater.process.keyed.appending import append_view
from headwater.process.keyed.bucket import DEAD, STAGED, STATE
from headwater.process.keyed.keeping import Manifests, from_json
from headwater.process.keyed.packing import unpack
from headwater.process.keyed.travel import COLUMNS, staged
from headwater.process.settled import settle


@dataclass
class StagedViews(WriterCommitMessage):
    parts: dict[int, list[Part]]
    """By the number of the view."""
    state: dict[int, dict[str, Manifests]]
    """Of each view, what will be listed of the buckets that have changed."""


class BlobWriter(DataSourceStreamArrowWriter):
    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = tuple(jobs)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        blobs: dict[tuple[int, int, int], list[bytes]] = {}
        for batch in iterator:
            columns = (batch.column(name).to_pylist() for name in ("view", "port", "bucket", "data"))
            for view, port, partition, blob in zip(*columns, strict=True):
                blobs.setdefault((view, port, partition), []).append(blob)
        parts: dict[int, list[Part]] = {}
        state: dict[int, dict[str, Manifests]] = {}
        for (view, port, partition), packed in sorted(blobs.items()):
            job, own = self._jobs[view], parts.setdefault(view, [])
            if port == STATE:
                for told in packed:
                    state.setdefault(view, {}).update(from_json(json.loads(told)))
            elif port == STAGED:
                own += [pickle.loads(part) for part in packed]
            elif port == DEAD:
                own += staged(job, job.dead_topic, 0, unpack(packed))
            else:
                own += staged(job, job.topic, partition, unpack(packed))
        for job in self._jobs:
            job.reached("2 after")
        return StagedViews(parts, state)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Each view's rows are appended with its own progress: a batch that runs again passes by who is done."""
        told = [message for message in messages if isinstance(message, StagedViews)]
        for view, job in enumerate(self._jobs):
            with blamed_on(job):
                parts = [part for each in told for part in each.parts.get(view, ())]
                changed = {place: of for each in told for place, of in each.state.get(view, {}).items()}
                progress = job.planned.progress(batchId)
                if progress is not None and not job.has_done(progress):
                    append_view(job, parts, changed, progress)
        parcels.remove(Path(self._jobs[0].query))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what was staged is listed nowhere."""


class BlobSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-blobs"

    def schema(self) -> str:
        return COLUMNS

    def streamWriter(self, schema: Any, overwrite: bool) -> BlobWriter:
        settle()
        return BlobWriter(load_jobs(self.options["jobs"]))
