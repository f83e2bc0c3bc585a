"""What some views read in one batch: their inputs' changes, already filtered and projected, on their way to buckets.

What several views read of the same range is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headwater.log.position import Position
from headwater.log.protocol import Progress
from headwater.process.job import Job
from headwater.process.keyed.bucket import Rows, Ways, sent
from headwater.process.lateness import admitted
from headwater.process.plan import Read
from headwater.process.source import Range, shares
from headwater.records import OFFSET, PARTITION

AT_ONCE = 100_000
"""Rows of a view without state that go through its query together: fewer would cost more to ask for than to answer."""


@dataclass(frozen=True)
class Shared:
    """A range, and the views that read it, by number."""

    part: Range
    views: tuple[int, ...]


Scanned = list[tuple[Range, Iterable[pa.RecordBatch]]]


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

    @property
    def views(self) -> list[int]:
        return sorted({view for shared in self.ranges for view in shared.views} | set(self.ends))


class Reading:
    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = tuple(jobs)

    def tasks(self, planned: Mapping[int, Progress], cores: int) -> list[Task]:
        """For views by number, what each is to read."""
        readers: dict[Range, list[int]] = {}
        for view, progress in planned.items():
            job = self._jobs[view]
            if not job.skipped(progress.start, progress.end, job.inputs):
                for part in _ranges(job, progress):
                    readers.setdefault(part, []).append(view)
        ends = {view: progress.end for view, progress in planned.items()}
        first = frozenset(view for view, progress in planned.items() if progress.start == self._jobs[view].begin)
        tasks: list[Task] = []
        for some in shares(list(readers), cores):
            parts = [(each, tuple(readers[whole])) for whole, each in some]
            once = (ends, first) if not tasks else ({}, frozenset[int]())
            tasks.append(Task(len(tasks), [Shared(*each) for each in parts], *once))
        return tasks or [Task(0, (), ends, first)]

    def scanned(self, ranges: Sequence[Shared]) -> dict[tuple[int, str], Scanned]:
        """What each view reads of a topic, in all the columns that one of the views wants; each range is read once."""
        found: dict[tuple[int, str], Scanned] = {}
        for shared in ranges:
            part = shared.part
            reads = [read for view in shared.views for read in self._jobs[view].keyed.reads if read.topic == part.topic]
            times = [_time_of(self._jobs[view], part.topic) for view in shared.views]
            columns = dict.fromkeys([*(name for read in reads for name in read.columns), *filter(None, times)])
            metadata = any(read.metadata for read in reads)
            batches: Iterable[pa.RecordBatch] = (
                self._jobs[0]
                .log()
                .scan(part.topic, part.partition, part.start, part.end, columns=list(columns), metadata=metadata)
            )
            if len(shared.views) > 1:
                batches = list(batches)
            for view in shared.views:
                found.setdefault((view, part.topic), []).append((part, batches))
        return found


def leaving_source(
    job: Job, read: Read, scanned: Scanned, ways: Ways | None = None
) -> Iterator[tuple[int, Iterator[Rows]]]:
    """The rows of each send of a read, with its number: again and again, if they need not be together. `ways` says
    into how many buckets they are spread, if these are not all of the plan's."""
    names = [*read.columns, *([PARTITION, OFFSET] if read.metadata else [])]
    if read.topic in dict(job.lateness):
        spec = job.log().topic(read.topic)
        scanned = [(part, admitted(job, spec, part, batches)) for part, batches in scanned]
    batches = (batch.select(names) for _, batches in scanned for batch in batches)
    for rows in _together(batches, None if job.keyed.levels else AT_ONCE):
        for place, send in enumerate(read.sends):
            yield place, sent(send, rows, job.keyed.buckets if ways is None else ways(send))


def _ranges(job: Job, progress: Progress) -> Iterator[Range]:
    start, end = progress.start.as_dict(), progress.end.as_dict()
    for topic in job.inputs:
        low = start.get(topic, {})
        if job.from_retained:  # the pin of this run keeps it the same for a second try
            retained = {partition: extent.start for partition, extent in job.log().extents(topic).items()}
            low = {partition: low.get(partition) or begin for partition, begin in retained.items()}
        for partition, high in end.get(topic, {}).items():
            if high > low.get(partition, 0):
                yield Range(topic, partition, low.get(partition, 0), high)


def _together(batches: Iterable[pa.RecordBatch], least: int | None) -> Iterator[pa.Table]:
    """At least so many rows at once, or all: as what is summed or ranked before it travels."""
    listed: list[pa.RecordBatch] = []
    for batch in batches:
        listed.append(batch)
        if least is not None and sum(each.num_rows for each in listed) >= least:
            yield pa.Table.from_batches(listed)
            listed = []
    if listed:
        yield pa.Table.from_batches(listed)


def _time_of(job: Job, topic: str) -> str | None:
    """The time column of an input by which records of it may be late."""
    return job.log().topic(topic).time if topic in dict(job.lateness) else None
