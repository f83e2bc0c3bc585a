"""What `until="caught-up"` waits for: all that stood in the input topics at the call has gone through every pipeline,
and views answer with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.serve.view import View

if TYPE_CHECKING:
    from headwater.process.pipeline import Pipeline


class Goal:
    """`pipelines` are in the order of dependence: what one has made of the goal is the goal of those that read it."""

    def __init__(self, log: Log, pipelines: Sequence[Pipeline]) -> None:
        self.log = log
        self._left = list(pipelines)
        derived = {pipeline.topic for pipeline in pipelines}
        given = {topic for pipeline in pipelines for topic in pipeline.lane.inputs} - derived
        self._ends = {topic: log.snapshot([topic]).position for topic in given}
        self._served: list[tuple[str, Position]] = []

    def reached(self, views: Mapping[str, View]) -> bool:
        """Whether it is so by now; and views answer with it."""
        while self._left and self._through(self._left[0]):
            self._left.pop(0)
        return not self._left and all(
            views[name].position.covers(asked) for name, asked in self._served if name in views
        )

    def _through(self, pipeline: Pipeline) -> bool:
        covered = self.log.covered(pipeline.producer)
        wanted = [self._ends[topic] for topic in pipeline.lane.inputs]
        if not all(each == Position() for each in wanted):
            if covered is None or not all(covered.progress.end.covers(each) for each in wanted):
                return False
            self._served += [(pipeline.name, each) for each in wanted]
        number = covered.number if covered is not None else None
        ends = self.log.position_at(pipeline.topic, number) if number is not None else {}
        self._ends[pipeline.topic] = Position.of({pipeline.topic: ends})
        return True
