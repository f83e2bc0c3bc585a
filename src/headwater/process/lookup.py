"""The versions of pipelines as readers see them: which one counts, and who makes a topic of what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.clock import system_clock
from headwater.errors import TopicNotFound
from headwater.log.coverage import Made
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.process.registry import TOPIC, Registry
from headwater.process.version import Version, first_versions


@dataclass(frozen=True)
class _Known:
    end: Position
    """Of the registry's topic, when it was read."""
    versions: dict[tuple[str, int], Made]
    current: dict[str, Made]
    topics: dict[str, Made]


class VersionLookup:
    """Every answer is as the registry is at the call; all that costs is to ask whether the log has changed and, if it
    has, for the end of the registry's topic.

    `declared` gives the inputs of pipelines in the code at hand: who makes what, as long as nothing of it has run.
    """

    def __init__(self, log: Log, root: Path, *, declared: Callable[[], Mapping[str, tuple[str, ...]]] = dict) -> None:
        self._log = log
        self._root = root
        self._declared = declared
        self._registry = Registry(log, clock=system_clock)
        self._read: _Known | None = None
        self._looked = threading.local()

    def current(self, view: str) -> Made | None:
        return self._known().current.get(view)

    def version(self, view: str, number: int) -> Made | None:
        return self._known().versions.get((view, number))

    def made_by(self, topic: str) -> Made | None:
        known = self._known()
        inputs = self._declared().get(topic) if topic not in known.topics and topic not in known.current else None
        return known.topics.get(topic) if inputs is None else Made(topic, 0, topic, f"{topic}@", inputs)

    def _known(self) -> _Known:
        changed = self._log.changed()  # asked first: no change after it is overlooked
        looked: tuple[int, _Known] | None = getattr(self._looked, "last", None)
        if looked is None or looked[0] != changed:
            looked = self._looked.last = changed, self._newest()
        return looked[1]

    def _newest(self) -> _Known:
        try:
            end = self._log.snapshot([TOPIC]).position
        except TopicNotFound:
            end = Position()
        read = self._read
        if read is None or read.end != end:
            older = [Version(name, 1, mark, {}, {}, "current") for name, mark in first_versions(self._root).items()]
            book = self._registry.read(adopt=older)
            read = self._read = self._sorted(end, [each for of in book.versions.values() for each in of])
        return read

    def _sorted(self, end: Position, versions: Sequence[Version]) -> _Known:
        there = [(each, self._made(each)) for each in versions if each.state != "dropped"]
        return _Known(
            end,
            {(each.name, each.version): made for each, made in there},
            {each.name: made for each, made in there if each.state == "current"},
            {made.topic: made for _, made in there},
        )

    def _made(self, version: Version) -> Made:
        return Made(version.name, version.version, version.topic, version.producer, self._inputs(version))

    def _inputs(self, version: Version) -> tuple[str, ...]:
        """Those that make batches, and of which the progress therefore tells."""
        if not version.inputs:  # built before they were recorded
            covered = self._log.covered(version.producer)
            return covered.progress.end.topics if covered is not None else ()
        over_frames = "mode" in version.description  # it reads tables as they are
        return tuple(topic for topic in version.inputs.values() if not (over_frames and self._is_table(topic)))

    def _is_table(self, topic: str) -> bool:
        try:
            return self._log.topic(topic).kind == "table"
        except TopicNotFound:
            return False
