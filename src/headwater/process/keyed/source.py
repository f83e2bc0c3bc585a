"""The keyed lane's source: for one view or for several, their inputs' changes, already filtered and projected, packed
by bucket. What several views read of the same range is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from headwater.process.keyed.bucket import BEGIN, WATERMARK, Blob, begins, pack_watermark, sent
from headwater.process.keyed.offsets import Entry, Offset
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.travel import COLUMNS, batch_of, leaving
from headwater.process.lateness import admitted, watermark
from headwater.process.plan import Read
from headwater.process.source import IDLE_S, Limits, Range, newest_of, shares
from headwater.records import OFFSET, PARTITION


@dataclass(frozen=True)
class Shared:
    """A range, and the views that read it, by number."""

    part: Range
    views: tuple[int, ...]


_Scanned = list[tuple[Range, Iterable[pa.RecordBatch]]]


class Task(InputPartition):
    def __init__(
        self,
        number: int,
        ranges: Sequence[Shared],
        ends: Mapping[int, Position],
        first: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(None)
        self.number = number
        self.ranges = tuple(ranges)
        self.ends = dict(ends)
        """Where the batch ends for each view that takes part, in its first task: what is done once is done there."""
        self.first = first
        """Those of them for which it is the first batch of all."""


class PackedReader(DataSourceStreamReader):
    def __init__(self, jobs: Sequence[Job], limits: Limits) -> None:
        self._jobs = tuple(jobs)
        self._limits = limits
        self._quiet = AppendNumber(0)
        """Up to which append there is no news for anybody: appends of others, our own among them, are none."""
        self._cuts = Cuts()

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
        self._log.wait(self._quiet, IDLE_S)
        if held(Path(self._jobs[0].folder).parents[1]):  # a backup is being made: no batch is planned meanwhile
            return start
        news: dict[str, Entry] = {}
        looked: list[AppendNumber] = []
        for job in self._jobs:
            covered = self._log.covered(job.producer.name)
            at = covered.progress.end if covered is not None else Position()
            entry = known.get(job.producer.name)
            number = entry.end.number if entry is not None and entry.end.position == at else AppendNumber(0)
            snapshot = self._planned(job, Snapshot(number, at), looked)
            if snapshot.position != at:
                planned = Entry(at, snapshot)
                if entry is not None and entry == replace(planned, again=entry.again):
                    planned = replace(planned, again=entry.again + 1)
                news[job.producer.name] = planned
        if news:
            return offsets.to_offset({**known, **news})
        self._quiet = min(looked)
        return start

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
        readers: dict[Range, list[int]] = {}
        ends = {}
        first = set()
        for view, job in enumerate(self._jobs):
            entry = planned.get(job.producer.name)
            if entry is None:
                continue
            job.reached("1 after")
            ends[view] = entry.end.position
            if entry.start == job.begin:
                first.add(view)
            if not job.skipped(entry.start, entry.end.position, job.inputs):
                for part in self._ranges(job, entry):
                    readers.setdefault(part, []).append(view)
        tasks: list[InputPartition] = []
        for some in shares(list(readers), self._limits.cores):
            parts = [(each, tuple(readers[whole])) for whole, each in some]
            once = (ends, frozenset(first)) if not tasks else ({}, frozenset[int]())
            tasks.append(Task(len(tasks), [Shared(*each) for each in parts], *once))
        return tasks or [Task(0, (), ends, frozenset(first))]

    def _ranges(self, job: Job, entry: Entry) -> Iterator[Range]:
        for topic in job.inputs:
            for partition, extent in self._log.extents(topic).items():
                low, high = entry.start.offset(topic, partition), entry.end.position.offset(topic, partition)
                if low == 0 and job.from_retained:  # the pin of this run keeps it the same for a second try
                    low = extent.start
                if high > low:
                    yield Range(topic, partition, low, high)

    # --- reading ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        views = sorted({view for shared in partition.ranges for view in shared.views} | set(partition.ends))
        scanned = self._scanned(partition.ranges)
        for view in views:
            job = self._jobs[view]
            with blamed_on(job):
                job.reached("2 before")
                plan = job.keyed
                labels = bucket_labels(plan.buckets) if plan.levels else range(plan.buckets)
                for read in plan.reads:
                    found = scanned.get((view, read.topic), [])
                    blobs = list(self._sent(job, read, found, f"task {partition.number:04}"))
                    if blobs:
                        yield batch_of(view, blobs, labels)
                if view in partition.first and begins(plan):
                    yield batch_of(view, [Blob(0, BEGIN, b"")], labels)
                if view in partition.ends and job.lateness and plan.levels:
                    passed = watermark(job, partition.ends[view])
                    if passed is not None:
                        data = pack_watermark(passed)
                        blobs = [Blob(bucket, WATERMARK, data) for bucket in range(plan.buckets)]
                        yield batch_of(view, blobs, labels)

    def _scanned(self, ranges: Sequence[Shared]) -> dict[tuple[int, str], _Scanned]:
        """What each view reads of a topic, in all the columns that one of the views wants; each range is read once."""
        found: dict[tuple[int, str], _Scanned] = {}
        for shared in ranges:
            part = shared.part
            reads = [read for view in shared.views for read in self._jobs[view].keyed.reads if read.topic == part.topic]
            times = [_time_of(self._jobs[view], part.topic) for view in shared.views]
            columns = dict.fromkeys([*(name for read in reads for name in read.columns), *filter(None, times)])
            metadata = any(read.metadata for read in reads)
            batches: Iterable[pa.RecordBatch] = self._log.scan(
                part.topic, part.partition, part.start, part.end, columns=list(columns), metadata=metadata
            )
            if len(shared.views) > 1:
                batches = list(batches)
            for view in shared.views:
                found.setdefault((view, part.topic), []).append((part, batches))
        return found

    def _sent(self, job: Job, read: Read, scanned: _Scanned, task: str) -> Iterator[Blob]:
        names = [*read.columns, *([PARTITION, OFFSET] if read.metadata else [])]
        spec = self._log.topic(read.topic)
        batches = (batch.select(names) for part, batches in scanned for batch in admitted(job, spec, part, batches))
        for rows in _together(batches) if job.keyed.levels else map(_alone, batches):
            for place, send in enumerate(read.sends):
                yield from leaving(job, sent(send, rows, job.keyed.buckets), f"{task} {read.topic} {place:04}")


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """What is summed or ranked before it travels, all at once."""
    listed = list(batches)
    if listed:
        yield pa.Table.from_batches(listed)


def _alone(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _time_of(job: Job, topic: str) -> str | None:
    """The time column of an input by which records of it may be late."""
    return job.log().topic(topic).time if topic in dict(job.lateness) else None


class PackedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-packed"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> PackedReader:
        return PackedReader(load_jobs(self.options["jobs"]), Limits.of(self.options))
