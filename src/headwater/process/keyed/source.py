"""The keyed lane's source: for one view or for several, what each reads next, packed by bucket.

A batch with few records does not even get to be one of Spark's (`keyed.few`): it is run where it would be planned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Snapshot
from headwater.process.blame import blamed_on
from headwater.process.cuts import Cuts
from headwater.process.hold import held
from headwater.process.job import Job, load_jobs
from headwater.process.keyed import offsets
from headwater.process.keyed.bucket import BEGIN, WATERMARK, Blob, begins, pack_watermark
from headwater.process.keyed.few import FewRecords
from headwater.process.keyed.offsets import Entry, Offset
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.reading import Reading, Task, leaving_source
from headwater.process.keyed.travel import COLUMNS, batch_of, leaving
from headwater.process.lateness import watermark
from headwater.process.settled import settle
from headwater.process.source import IDLE_S, Limits, newest_of

BUSY_S = 0.5
"""The same, while batches of few records come: Spark has nothing to do in between."""


class PackedReader(DataSourceStreamReader):
    def __init__(self, jobs: Sequence[Job], limits: Limits) -> None:
        self._jobs = tuple(jobs)
        self._limits = limits
        self._quiet = AppendNumber(0)
        """Up to which append there is no news for anybody: appends of others, our own among them, are none."""
        self._last: dict[str, Snapshot] = {}
        """Where the last batch of each view was to end, by producer: appends before that need not be looked at."""
        self._cuts = Cuts()
        self._reading = Reading(jobs)
        self._few = FewRecords(jobs, self._reading, limits.few)

    @property
    def _log(self) -> Log:
        return self._jobs[0].log()

    # --- planning ---

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the limit is ours, in rows, and ends on an append

    def initialOffset(self) -> Offset:
        return offsets.to_offset({})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        for job in self._jobs:
            self._log.check(job.producer)  # step 5: a run that was overtaken plans nothing more
            job.reached("1 before")
        known = offsets.from_offset(start)
        pipelines = Path(self._jobs[0].folder).parents[1]
        began = time.monotonic()
        until = began + IDLE_S
        while (now := time.monotonic()) < until:
            self._log.wait(self._quiet, until - now)
            if held(pipelines):  # a backup is being made: no batch is planned meanwhile
                break
            news = self._news(known)
            if left := self._few.run(news, pipelines):
                return offsets.to_offset({**known, **left})
            if news:
                until = began + BUSY_S
        return start

    def _news(self, known: Mapping[str, Entry]) -> dict[str, Entry]:
        """What each view that has something to read is to read next."""
        news: dict[str, Entry] = {}
        looked: list[AppendNumber] = []
        for job in self._jobs:
            covered = self._log.covered(job.producer.name)
            at = covered.progress.end if covered is not None else Position()
            entry, last = known.get(job.producer.name), self._last.get(job.producer.name)
            after = last if last is not None and last.position == at else Snapshot(AppendNumber(0), at)
            snapshot = self._last[job.producer.name] = self._planned(job, after, looked)
            if snapshot.position != at:
                planned = Entry(at, snapshot)
                if entry is not None and entry == replace(planned, again=entry.again):
                    planned = replace(planned, again=entry.again + 1)
                news[job.producer.name] = planned
        if not news:
            self._quiet = min(looked)
        return news

    def _planned(self, job: Job, after: Snapshot, looked: list[AppendNumber]) -> Snapshot:
        if job.parked is not None and job.parked.start == after.position:
            looked.append(self._log.snapshot(job.inputs).number)
            return Snapshot(after.number, job.parked.end)
        planned = self._cuts.planned(
            job, after.position, job.inputs, lambda topics: newest_of(self._log, topics, after, self._limits)
        )
        looked.append(planned.looked)
        return planned.end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        planned = offsets.taking_part(offsets.from_offset(start), offsets.from_offset(end))
        progress = {}
        for view, job in enumerate(self._jobs):
            entry = planned.get(job.producer.name)
            if entry is not None and not job.has_done(entry.progress):
                job.reached("1 after")
                progress[view] = entry.progress
        return list(self._reading.tasks(progress, self._limits.cores))

    # --- reading ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        scanned = self._reading.scanned(partition.ranges)
        for view in partition.views:
            job = self._jobs[view]
            with blamed_on(job):
                job.reached("2 before")
                plan = job.keyed
                labels = bucket_labels(plan.buckets) if plan.levels else range(plan.buckets)
                for read in plan.reads:
                    task = f"task {partition.number:04} {read.topic}"
                    leaves = leaving_source(job, read, scanned.get((view, read.topic), []))
                    blobs = [blob for send, rows in leaves for blob in leaving(job, rows, f"{task} {send:04}")]
                    if blobs:
                        yield batch_of(view, blobs, labels)
                if view in partition.first and begins(plan):
                    yield batch_of(view, [Blob(0, BEGIN, b"")], labels)
                passed = watermark(job, partition.ends[view]) if view in partition.ends and plan.levels else None
                if passed is not None:
                    data = pack_watermark(passed)
                    yield batch_of(view, [Blob(bucket, WATERMARK, data) for bucket in range(plan.buckets)], labels)


class PackedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-packed"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> PackedReader:
        settle()
        return PackedReader(load_jobs(self.options["jobs"]), Limits.of(self.options))
