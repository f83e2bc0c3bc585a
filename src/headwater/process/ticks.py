"""Ticks: what `now()` in a view means. Moments of the clock, in a topic like any other, so that a view remains a
function of the log: `now()` is the last tick that it covers, and before the first nothing compares with it.

While an app runs it appends a tick when, by the clock, a row of a view is to leave or to appear. Operators tell when
that is along with the size of their state (`keyed.expire`, `keyed.inspect`). With nothing due nothing is ticked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock, system_clock
from headwater.log import Log, Position, Topic
from headwater.log.spec import INTERNAL, TopicSpec
from headwater.process.keyed import inspect
from headwater.records import schema_of

if TYPE_CHECKING:
    from headwater.process.pipeline import Pipeline

AT = "at"
TICKS = TopicSpec(f"{INTERNAL}ticks", schema_of({AT: "timestamp"}), time=AT, partitions=1)
PACE_S = 1.0
"""At most so often is looked for something due, and ticked."""


class Ticker:
    """Of the pipelines that read ticks."""

    def __init__(self, log: Log, pipelines: Iterable[Pipeline], *, clock: Clock = system_clock) -> None:
        self._log = log
        self._of = [pipeline for pipeline in pipelines if TICKS.name in pipeline.lane.inputs]
        self._clock = clock
        self._ticked = Position()
        self._looked = 0.0

    def tick(self) -> None:
        """Now, if any pipeline wants to know."""
        if self._of:
            now = datetime.fromtimestamp(self._clock() / 1_000_000, UTC)
            self._ticked = Topic(self._log, self._log.topic(TICKS.name)).append([{AT: now}])

    def tick_when_due(self) -> None:
        """To be called often: looks once a second."""
        if self._of and time.monotonic() - self._looked >= PACE_S:
            self._looked = time.monotonic()
            if any(self._is_due(pipeline) for pipeline in self._of):
                self.tick()

    def _is_due(self, pipeline: Pipeline) -> bool:
        """Not before the last tick has had its effect there."""
        covered = self._log.covered(pipeline.producer)
        if covered is None or not covered.progress.end.covers(self._ticked):
            return False
        due = earliest(pipeline.folder)
        return due is not None and due <= self._clock()


def earliest(folder: Path) -> int | None:
    """When, in µs, the next row of the pipeline in that folder is to leave or to appear, as of its last batch."""
    return min((each["due"] for each in inspect.summary(folder) if each.get("due") is not None), default=None)
