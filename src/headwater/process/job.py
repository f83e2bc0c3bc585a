"""What every task of a pipeline's run must know. Travels to workers as an option, as text."""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headwater.errors import CheckpointLost
from headwater.log import open_log
from headwater.log.position import START, Position
from headwater.log.protocol import Log, Producer, Progress
from headwater.process import functions
from headwater.process.checkpoint import Checkpoint, Planned
from headwater.process.failpoint import Failpoint, Step
from headwater.process.keyed.keeping import Kept
from headwater.process.keyed.offsets import SharedCheckpoint
from headwater.process.plan import Plan


@dataclass(frozen=True)
class Job:
    name: str
    """The pipeline's."""
    log_url: str
    producer: Producer
    topic: str
    """Where the output goes."""
    folder: str
    """The pipeline's own: caches, and what is told about it."""
    query: str
    """The folder of its Spark query, which it may share with others: Spark's checkpoint is there."""
    inputs: tuple[str, ...]
    """The topics whose records make batches."""
    begin: Position = START
    """Where the first batch begins."""
    tables: tuple[str, ...] = ()
    """Topics that are read as of the batch's append, without making batches."""
    lateness: tuple[tuple[str, int], ...] = ()
    """For some inputs, how much later than the greatest event time before it a record may come, in µs."""
    parked: Progress | None = None
    """What a view did not read when it was parked: it is read as it was planned then, so that it can be skipped."""
    skips: tuple[Progress, ...] = ()
    """Batches whose records go to the dead letters instead of through the pipeline."""
    from_retained: bool = False
    """Begin with what retention has left of the inputs; else what is missing is an error."""
    plan: Plan | None = None
    """In the keyed lane."""
    failpoint: Failpoint | None = None
    local: bool = False
    """Whether all tasks run on this machine, so that files go from one to the other."""
    dropping: bool = False
    """Rows that come out are dropped, only the progress is appended: to measure what the way to there costs."""

    def log(self) -> Log:
        return _opened(self.log_url, os.getpid())

    @property
    def checkpoint(self) -> Path:
        return Path(self.query) / "checkpoint"

    @property
    def planned(self) -> Planned:
        if self.plan is not None:
            return SharedCheckpoint(self.checkpoint, self.producer.name)
        return Checkpoint(self.checkpoint, self.producer.name, self.begin)

    @property
    def cache(self) -> Path:
        return Path(self.folder) / "cache"

    @property
    def keyed(self) -> Plan:
        """Its plan, for whoever runs it in the keyed lane."""
        assert self.plan is not None
        return self.plan

    @property
    def kept(self) -> Kept | None:
        """Where its state rests, if it has any of its own and not Spark's."""
        has_state = self.plan is not None and self.plan.levels > 0
        return Kept(Path(self.folder), self.producer.name) if has_state else None

    def verify(self, log: Log) -> None:
        """Raises `CheckpointLost` if it cannot go on where its last append in the log ended."""
        self.planned.verify(log)
        while self.kept is not None:
            covered = log.covered(self.producer.name)
            try:
                return self.kept.verify(covered)
            except CheckpointLost:
                if log.covered(self.producer.name) == covered:  # else another run has gone on meanwhile
                    raise

    @property
    def late_topic(self) -> str:
        return f"{self.topic}.late"

    @property
    def dead_topic(self) -> str:
        return f"{self.topic}.dead"

    def has_done(self, progress: Progress) -> bool:
        """Whether the log has the append of a batch of the keyed lane: then there is nothing left to do for it."""
        covered = self.log().covered(self.producer.name)
        return covered is not None and covered.progress.end.covers(progress.end)

    def skipped(self, first: Position, last: Position, topics: tuple[str, ...]) -> bool:
        """Whether what lies between is to be left out, for a source of these topics."""
        return any(
            (first, last) == (skip.start.only(topics), skip.end.only(topics)) and first != last for skip in self.skips
        )

    def reached(self, step: Step, sequence: int | None = None) -> None:
        """A step of the append that has this sequence, or of the one that comes next."""
        if self.failpoint is not None:
            self.failpoint.reached(step, self._next() if sequence is None else sequence, self.name)

    def _next(self) -> int:
        if self.plan is None:
            done = self.planned.last_done()
        else:
            covered = self.log().covered(self.producer.name)
            done = covered.sequence if covered is not None else None
        return 0 if done is None else done + 1

    def dump(self) -> str:
        return dump_jobs([self])

    @staticmethod
    def load(text: str) -> Job:
        (job,) = load_jobs(text)
        return job


def dump_jobs(jobs: Sequence[Job]) -> str:
    """Spark would pickle a user's function by the name of a module that workers lack."""
    return base64.b64encode(functions.dumped(tuple(jobs))).decode()


@lru_cache(maxsize=64)
def load_jobs(text: str) -> tuple[Job, ...]:
    jobs: tuple[Job, ...] = pickle.loads(base64.b64decode(text))
    return jobs


@lru_cache(maxsize=16)
def _opened(url: str, pid: int) -> Log:
    """One log a worker process: SQLite's connections do not survive a fork, hence the process id in the key."""
    return open_log(url)
