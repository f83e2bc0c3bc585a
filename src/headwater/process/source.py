"""The Spark source over the log seam, whatever the lane makes of the records: offsets, admission, the split into tasks.

Offsets are append boundaries (`checkpoint.to_offset`), so a batch never ends inside an append.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Snapshot
from headwater.process.checkpoint import from_offset, to_offset
from headwater.process.cuts import Cuts
from headwater.process.hold import held
from headwater.process.job import Job

IDLE_S = 0.1
"""How long `latestOffset` waits for a change before it says that there is none: what an idle query costs."""
TASK_ROWS = 100_000
"""A batch with fewer rows is read by one task: starting a second one would cost more."""
MAX_ROWS = 1_000_000
"""Of a batch, unless its lane can take more."""
FEW_ROWS = 50_000
FEW = "HEADWATER_FEW_ROWS"
"""The environment variable for another number than that."""


@dataclass(frozen=True)
class Limits:
    """How much of all inputs is in one batch; an append larger than this is a batch of its own."""

    rows: int | None = None
    """None: as many as the lane finds good."""
    bytes: int | None = None
    cores: int = 1
    few: int = field(default_factory=lambda: int(os.environ.get(FEW, FEW_ROWS)))
    """In the keyed lane, how many rows a batch has at most that runs without a Spark job; 0: none does."""

    def options(self) -> dict[str, str]:
        return {
            "maxrows": str(self.rows or MAX_ROWS),
            "maxbytes": str(self.bytes or ""),
            "cores": str(self.cores),
            "few": str(self.few),
        }

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Limits:
        return cls(
            int(options["maxrows"]),
            int(options["maxbytes"]) if options["maxbytes"] else None,
            int(options["cores"]),
            int(options["few"]),
        )


@dataclass(frozen=True)
class Range:
    topic: str
    partition: int
    start: int
    end: int


class Task(InputPartition):
    def __init__(self, ranges: Sequence[Range], start: Position, end: Position) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.start, self.end = start, end
        """Where the batch begins and ends, of which this task has a part."""
        self.first = True
        """Whether it is the batch's first task: what is done once a batch is done there."""


class LogReader(DataSourceStreamReader):
    """Of some topics of a job. The frames lane adds `read`."""

    def __init__(self, job: Job, topics: Sequence[str], limits: Limits) -> None:
        self._job = job
        self._topics = tuple(topics)
        self._limits = limits
        self._quiet: Snapshot | None = None
        """Up to which append nothing came since that position: appends of others, our own among them, are no news."""
        self._cuts = Cuts()

    @property
    def _log(self) -> Log:
        return self._job.log()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the limit is ours, in rows, and ends on an append

    def initialOffset(self) -> dict[str, object]:
        return to_offset(Snapshot(AppendNumber(0), self._job.begin.only(self._topics)))

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        self._log.check(self._job.producer)  # step 5: a run that was overtaken plans nothing more
        self._job.reached("1 before")
        after = from_offset(start)
        known = self._quiet if self._quiet is not None and self._quiet.position == after.position else after
        self._log.wait(known.number, IDLE_S)
        if held(Path(self._job.folder).parents[1]):  # a backup is being made: no batch is planned meanwhile
            return start
        planned = self._cuts.planned(
            self._job, after.position, self._topics, lambda topics: newest_of(self._log, topics, after, self._limits)
        )
        if planned.end.position != after.position:
            return to_offset(planned.end)
        self._quiet = Snapshot(planned.looked, after.position)
        return start

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        self._job.reached("1 after")
        first, last = from_offset(start).position, from_offset(end).position
        if self._job.skipped(first, last, self._topics):
            return [Task((), first, last)]
        ranges = []
        for topic in self._topics:
            for partition, extent in self._log.extents(topic).items():
                low, high = first.offset(topic, partition), last.offset(topic, partition)
                if low == 0 and self._job.from_retained:  # the pin of this run keeps it the same for a second try
                    low = extent.start
                if high > low:
                    ranges.append(Range(topic, partition, low, high))
        tasks = [Task([part for _, part in some], first, last) for some in shares(ranges, self._limits.cores)]
        for other in tasks[1:]:
            other.first = False
        return list(tasks)

    def begun(self) -> None:
        """Called by a lane when a task begins to read (step 2)."""
        self._job.reached("2 before")


def newest_of(log: Log, topics: Sequence[str], after: Snapshot, limits: Limits) -> Snapshot:
    """The newest append that a batch can end at."""
    begin = Snapshot(after.number, after.position.only(topics))
    return log.snapshot(topics, after=begin, max_rows=limits.rows, max_bytes=limits.bytes)


def shares(ranges: Sequence[Range], cores: int) -> Iterator[list[tuple[Range, Range]]]:
    """All of a little to one task, `cores` shares of about the same size of a lot: ranges, and the pieces of them."""
    total = sum(part.end - part.start for part in ranges)
    if total <= TASK_ROWS:
        yield [(part, part) for part in ranges]
        return
    share = -(-total // cores)
    current: list[tuple[Range, Range]] = []
    room = share
    for part in ranges:
        start = part.start
        while start < part.end:
            end = min(part.end, start + room)
            current.append((part, Range(part.topic, part.partition, start, end)))
            room -= end - start
            start = end
            if room == 0:
                yield current
                current, room = [], share
    if current:
        yield current
