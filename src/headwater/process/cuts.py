"""Where a batch ends when somebody waits for a cut (`log.cuts`): at the first cut that the pipeline has not come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from headwater.errors import TopicNotFound
from headwater.log import open_log
from headwater.log.coverage import Made, MadeBy
from headwater.log.cuts import CUTS, Cut, recent, standing
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Snapshot
from headwater.process.job import Job
from headwater.process.lookup import VersionLookup

Newest = Callable[[Sequence[str]], Snapshot]
"""How far some topics can be read in one batch, by its limits."""


@dataclass(frozen=True)
class Planned:
    end: Snapshot
    looked: AppendNumber
    """Up to which append was looked: if the end is no news, nothing before that is."""


class Cuts:
    """Of the pipelines of one reader, in the process in which Spark plans batches."""

    def __init__(self) -> None:
        self._known: list[Cut] = []
        self._read = Position()
        self._looked = AppendNumber(0)
        self._done: dict[str, AppendNumber] = {}

    def planned(self, job: Job, at: Position, topics: Sequence[str], newest: Newest) -> Planned:
        """How far a pipeline that has read these topics up to `at` may read on: up to the next cut, and not further,
        while what it reads itself has not come there."""
        log, producer = job.log(), job.producer.name
        wanted = newest(topics)
        position = _each(max, at, wanted.position)
        now = datetime.now(UTC)
        for cut in self._recent(log, wanted.number) if position != at else ():
            concerned = producer in cut.producers and cut.until > now and cut.number > self._done.get(producer, 0)
            if not concerned or cut.number > wanted.number:
                continue
            stands = standing(log, _made_by(job), _made(job), cut.number)
            if not stands.passed and stands.number is None:
                end = _each(min, position, stands.target)
                behind = [topic for topic in topics if not at.covers(stands.target.only([topic]))]
                if end == at and behind:  # a limit of rows would let in only what lies beyond the cut
                    end = _each(min, _each(max, at, newest(behind).position), stands.target)
                return Planned(Snapshot(min(wanted.number, cut.number), end), wanted.number)
            self._done[producer] = cut.number
        return Planned(Snapshot(wanted.number, position), wanted.number)

    def _recent(self, log: Log, number: AppendNumber) -> list[Cut]:
        """All up to that append, which is there already: none of them is overlooked."""
        if number > self._looked:
            try:
                end = log.snapshot([CUTS.name]).position
            except TopicNotFound:  # nobody has ever asked
                end = Position()
            if end != self._read:
                self._known, self._read = recent(log), end
            self._looked = number
        return self._known


@lru_cache(maxsize=16)
def _lookup(url: str, root: Path, pid: int) -> VersionLookup:
    """One a process: a reader travels to tasks, and this does not go along."""
    return VersionLookup(open_log(url), root)


def _made_by(job: Job) -> MadeBy:
    return _lookup(job.log_url, Path(job.folder).parents[2], os.getpid()).made_by


def _made(job: Job) -> Made:
    return Made(job.name, 0, job.topic, job.producer.name, job.inputs)


def _each(choose: Callable[[int, int], int], one: Position, other: Position) -> Position:
    """Partition by partition, the greater or the lesser offset."""
    ends: dict[str, dict[int, int]] = {}
    for topic, partition in dict.fromkeys(
        (topic, p) for each in (one, other) for topic, by in each.ends for p, _ in by
    ):
        chosen = choose(one.offset(topic, partition), other.offset(topic, partition))
        ends.setdefault(topic, {})[partition] = chosen
    return Position.of(ends)
