"""Following the stream, and between its transactions what else there is to do: compare tables, forget overlaps that are
over, look at the server."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from headwater.capture.appender import Appender
from headwater.capture.comparing import Comparing
from headwater.capture.standing import Standing

ASK_S, LOOK_S = 1.0, 5.0
"""How often it is looked whether somebody asks for something, and how the server stands."""

Table = TypeVar("Table")


class Following(ABC, Generic[Table]):
    def __init__(self, standing: Standing, tables: Mapping[str, Table], comparing: Comparing[Table]) -> None:
        assert standing.appender is not None
        self._appender: Appender = standing.appender
        self._standing = standing
        self._tables = tables
        self._comparing = comparing
        self._asked_at = self._looked_at = 0.0
        comparing.leave_out()

    @property
    @abstractmethod
    def heard(self) -> int:
        """Up to here all that the server has told is appended."""

    @abstractmethod
    def look(self) -> None:
        """How the server stands; now and then."""

    def past(self, until: int) -> bool:
        """Whether the stream has told all that an overlap may have shown."""
        return max(self.heard, self._appender.position.end) > until

    def ask_for_new(self) -> None:
        """Tables that were added to the capture since the last run are to be compared."""
        state = self._appender.state
        new = [name for name in self._tables if name not in (state.get("tables") or [])]
        if new:
            self._appender.append([], comparing=[*(state.get("comparing") or []), *new])

    def compare(self, stopped: threading.Event) -> None:
        """All that was asked for, before the stream goes on, which may need it."""
        self._comparing.begin(self._tables)
        while self._comparing.busy and not stopped.is_set():
            self._standing.phase = "comparing"
            self._comparing.step(self._tables)

    def between(self) -> None:
        """What is done between two transactions."""
        now = time.monotonic()
        overlaps: list[dict[str, Any]] = self._appender.state.get("overlaps") or []
        if overlaps and self.past(max(each["until"] for each in overlaps)):
            self._appender.append([], overlaps=None)
            self._comparing.leave_out()
        if now - self._asked_at > ASK_S:
            self._comparing.begin(self._tables)
            self._asked_at = now
        self._comparing.step(self._tables)
        if now - self._looked_at > LOOK_S:
            self.look()
            self._looked_at = now
        self._standing.phase = "comparing" if self._comparing.busy else "streaming"
        self._standing.heard = self.heard
