"""One run of polling a database.

1  Each table is asked for the rows whose column is at or above the mark, less the overlap, in which rows turn up that
   were committed late; the first time, for all that have a value there.
2  What the topic holds already is left out.
3  One append: the rows that are new, and the new mark. It never goes back.
What is never seen: deletes, a change that another follows before the next look, a row that is committed later than the
overlap allows for, a change that does not move the column, rows without a value in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.differences import differences
from headwater.capture.held import Held
from headwater.capture.position import SourcePosition
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.errors import BadCapture
from headwater.log.protocol import Log, Part
from headwater.log.spec import TopicSpec

Mark = int | float | str
"""As JSON has it; marks of one column compare."""
LOOK_S = 0.05


class Polled(Protocol):
    """A database of one kind. `SourceLost` if it does not answer."""

    def specs(self) -> dict[str, TopicSpec]:
        """What the topic of each table is to be; what cannot be polled is refused, with what to run."""

    def newer(self, table: str, spec: TopicSpec, mark: Mark | None) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        """Rows from the mark on, less the overlap, with the topic's columns; each batch with its greatest value."""


class PollCapture:
    def __init__(self, spec: CaptureSpec, log: Log, polled: Polled) -> None:
        if spec.settings.outbox is not None or spec.settings.wal_budget_bytes is not None:
            raise BadCapture(what="outbox and wal_budget_bytes need PostgreSQL's log", do="Leave them out, or poll")
        self.spec = spec
        self._log = log
        self._polled = polled
        self._appender: Appender | None = None
        self._held: dict[str, Held] = {}
        self._asked = threading.Event()
        self._begun, self._done = 0, 0
        """Looks at all tables."""

    def topics(self) -> dict[str, TopicSpec]:
        return {table: self._log.create(spec) for table, spec in self._polled.specs().items()}

    def run(self, stopped: threading.Event) -> None:
        specs = self.topics()
        appender = self._appender = Appender(self._log, self.spec.name)
        self._held = {table: Held(self._log, spec) for table, spec in specs.items()}
        while not stopped.is_set():
            self._asked.clear()
            self._begun += 1
            begun = self._begun
            for table, spec in specs.items():
                self._poll(appender, table, spec)
            self._done = begun
            self._pause(stopped)

    def goal(self) -> int:
        """A look that begins later than now."""
        goal = self._begun + 1
        self._asked.set()
        return goal

    def reached(self, goal: int) -> bool:
        return self._done >= goal

    def status(self) -> CaptureStatus:
        appender = self._appender
        if appender is None:
            return CaptureStatus(self.spec.name, "starting", 0)
        position = shown_marks(appender.state.get("marks") or {})
        return CaptureStatus(self.spec.name, "polling", appender.rows, position=position)

    def _poll(self, appender: Appender, table: str, spec: TopicSpec) -> None:
        column, marks = self.spec.settings.poll, appender.state.get("marks") or {}
        by, before = marks.get(table) or (None, None)
        before = mark = before if by == column else None
        parts: list[Part] = []
        for batch, greatest in self._polled.newer(table, spec, mark):  # 1
            rows = pa.Table.from_batches([batch])
            told = self._held[table].table(batch.select(spec.key))
            for changed in differences(spec, told, rows):  # 2
                parts += appender.stage(spec, changed)
            mark = greatest if mark is None else max(mark, greatest)
        if parts or mark != before:  # 3
            here = appender.position
            appender.append(parts, SourcePosition(0, here.end + 1), marks={**marks, table: [column, mark]})

    def _pause(self, stopped: threading.Event) -> None:
        """Until the next look is due, or somebody waits for one."""
        left = self.spec.settings.every_s
        while left > 0 and not self._asked.is_set() and not stopped.wait(min(left, LOOK_S)):
            left -= LOOK_S


def shown_marks(marks: Mapping[str, tuple[str, Mark]]) -> str:
    return ", ".join(f"{table}: {column} {mark}" for table, (column, mark) in marks.items())
