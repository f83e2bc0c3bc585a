"""A table is compared with its topic, a range of its key at a time, while the stream goes on; what differs is appended.

So after a gap, when somebody asks for it, when a table is added to a capture later, and when the stream does not tell
what was done to it. Between two transactions of the stream:
    1  A snapshot is taken, which has seen all that is appended; and perhaps some of what the stream has yet to tell.
    2  The range is read from it, and compared with the rows that the topic holds.
    3  The differences are appended, with the overlap: the stream leaves out what this snapshot has shown in this range.
So the topic is exact after every append, and the stream waits only as long as a range takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.current import rows_in
from headwater.capture.differences import differences
from headwater.capture.outbox import Outbox
from headwater.capture.ranges import Range
from headwater.log.spec import TopicSpec

Table = TypeVar("Table")


@dataclass(frozen=True)
class Found:
    """A range of a table, as a snapshot shows it."""

    spec: TopicSpec
    """Its topic, with all columns that the table has by now."""
    rows: pa.Table
    overlap: dict[str, Any]


class Comparing(ABC, Generic[Table]):
    """The tables that are asked for, a range at each `step`."""

    def __init__(self, appender: Appender, outbox: Outbox | None) -> None:
        self._appender = appender
        self._outbox = outbox
        self._left: list[tuple[str, Range]] = []

    @abstractmethod
    def ranges(self, table: Table) -> list[Range]: ...

    @abstractmethod
    def read(self, table: Table, within: Range) -> Found | None:
        """Steps 1 and 2; None if such a snapshot cannot be had yet."""

    @abstractmethod
    def leave_out(self) -> None:
        """The stream is told what the overlaps are now."""

    @property
    def busy(self) -> bool:
        return bool(self._left)

    def begin(self, tables: Mapping[str, Table]) -> None:
        """Take up what was asked for, also by an earlier run that did not end it."""
        state = self._appender.state
        state.refresh()
        asked = state.get("asked") or []
        wanted = dict.fromkeys([*(state.get("comparing") or []), *(list(tables) if "*" in asked else asked)])
        names = [name for name in wanted if name in tables]
        if asked:
            self._appender.append([], asked=None, comparing=names)
        planned = {name for name, _ in self._left}
        self._left += [(name, each) for name in names if name not in planned for each in self.ranges(tables[name])]

    def step(self, tables: Mapping[str, Table]) -> None:
        """The next range, if there is one and it can be read now."""
        if not self._left:
            return
        name, within = self._left[0]
        found = self.read(tables[name], within)
        if found is None:
            return
        self._left.pop(0)
        spec, state = found.spec, self._appender.state
        told = rows_in(self._appender.log, spec, lambda rows: pa.array(within.holds(rows.column(spec.key[0]))))
        parts = [part for batch in differences(spec, told, found.rows) for part in self._appender.stage(spec, batch)]
        if self._outbox is not None and name == self._outbox.table:
            parts += [part for batch in found.rows.to_batches() for part in self._outbox.parts(batch)]
        changed: dict[str, Any] = {"overlaps": [*(state.get("overlaps") or []), found.overlap]}
        if not any(left == name for left, _ in self._left):
            changed["comparing"] = [each for each in state.get("comparing") or [] if each != name]
            changed["tables"] = sorted({*(state.get("tables") or []), name})
        self._appender.append(parts, **changed)  # 3
        self.leave_out()
