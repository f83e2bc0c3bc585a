"""Building a version beside the old one: whether its inputs are still whole, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.errors import InputsGone
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.process.version import Version


def refuse_lost_inputs(log: Log, view: str, topics: Iterable[str]) -> None:
    """Retention takes records away, and a rebuilt view would not count what the old one has counted.

    Compaction of tables takes nothing away: net sums and newest rows give the same answer.
    """
    for topic in topics:
        stream = log.topic(topic).kind == "stream"
        for partition, extent in log.extents(topic).items():
            first = max(extent.start, extent.horizon if stream else 0)
            if first > 0:
                raise InputsGone(view=view, topic=topic, partition=partition, first=first)


class Build:
    """Versions that are built together, in the order of dependence, and `covers`: how far each is, by its inputs.

    What a version must cover is fixed once all that it reads is built: `caught-up`, one after the other.
    """

    def __init__(self, log: Log, versions: Sequence[Version], covers: Callable[[Version], Position]) -> None:
        self._log = log
        self._versions = versions
        self._covers = covers
        self._starts = {topic: _start(log, topic) for each in versions for topic in self._outer(each)}
        self._goals: dict[str, Position] = {}
        self._done: set[str] = set()

    def done(self) -> bool:
        for each in self._versions:
            if each.name not in self._done and self._inputs_done(each):
                goal = self._goals.setdefault(each.name, self._log.snapshot(list(each.inputs.values())).position)
                if self._covers(each).covers(goal):
                    self._done.add(each.name)
        return len(self._done) == len(self._versions)

    def line(self) -> str:
        return "building " + ", ".join(
            f"{each.name} version {each.version}: {self._percent(each)} %" for each in self._versions
        )

    def _percent(self, version: Version) -> int:
        """Of the records that its inputs have now; 100 only when it is done."""
        if version.name in self._done:
            return 100
        there = [topic for topic in version.inputs.values() if topic in self._starts or self._is_there(topic)]
        goal = self._goals.get(version.name) or self._log.snapshot(there).position
        start = Position.of({topic: self._starts.get(topic, {}) for topic in there})
        whole = goal.only(there).total - start.only(there).total
        done = max(0, _covered(self._covers(version), goal) - start.only(there).total)
        return min(99, 100 * done // whole) if whole > 0 else 0

    def _inputs_done(self, version: Version) -> bool:
        return all(each.name in self._done for each in self._versions if each.topic in version.inputs.values())

    def _outer(self, version: Version) -> list[str]:
        inner = {each.topic for each in self._versions}
        return [topic for topic in version.inputs.values() if topic not in inner]

    def _is_there(self, topic: str) -> bool:
        return any(spec.name == topic for spec in self._log.topics())


def _start(log: Log, topic: str) -> dict[int, int]:
    return {partition: extent.start for partition, extent in log.extents(topic).items()}


def _covered(covers: Position, goal: Position) -> int:
    """How many of the goal's records are covered; what goes beyond it in one partition does not count for another."""
    return sum(min(covers.offset(topic, partition), end) for topic, by in goal.ends for partition, end in by)
