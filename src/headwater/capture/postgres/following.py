"""Following the stream, and between its transactions what else there is to do: compare tables, forget overlaps that are
over, see what the server keeps for us."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.capture.outbox import Outbox
from headwater.capture.position import lsn_text
from headwater.capture.postgres.changes import Changes
from headwater.capture.postgres.comparing import Comparing
from headwater.capture.postgres.connection import Connection
from headwater.capture.postgres.guard import kept_for
from headwater.capture.postgres.messages import Messages
from headwater.capture.postgres.overlap import Overlap
from headwater.capture.postgres.relations import Relations
from headwater.capture.postgres.slot import Slot
from headwater.capture.postgres.standing import Standing
from headwater.capture.postgres.stream import Stream
from headwater.capture.postgres.tables import Table
from headwater.capture.spec import CaptureSpec
from headwater.clock import Clock

ASK_S, GUARD_S = 1.0, 5.0
"""How often it is looked whether somebody asks for something, and what the server keeps for us."""


class Overrun(Exception):
    """The server keeps more WAL for us than it may, and we are to let it go."""


class Following:
    def __init__(
        self,
        spec: CaptureSpec,
        standing: Standing,
        connection: Connection,
        slot: Slot,
        tables: dict[str, Table],
        outbox: Outbox | None,
        *,
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        appender = standing.appender
        assert appender is not None
        self._spec = spec
        self._standing = standing
        self._say = say
        self._connection = connection
        self._slot = slot
        self._tables = tables
        self._appender = appender
        self._relations = Relations(appender.log, connection, tables)
        changes = Changes(appender, self._relations.learn, Messages(appender, spec.name), outbox)
        self._comparing = Comparing(spec.url, connection, appender, self._relations, changes, outbox)
        self._stream = Stream(
            spec.url, slot.name, appender, changes, heartbeat_s=spec.settings.heartbeat_s, clock=clock
        )
        self._asked_at = self._guarded_at = 0.0
        self._relations.leave_out(self._overlaps())

    def run(self, stopped: threading.Event) -> None:
        state = self._appender.state
        new = [name for name in self._tables if name not in (state.get("tables") or [])]
        if new:
            self._appender.append([], comparing=[*(state.get("comparing") or []), *new])
        self._comparing.begin(self._tables)  # what was asked for before comes first: the stream may need it
        while self._comparing.busy and not stopped.is_set():
            self._standing.phase = "comparing"
            self._comparing.step(self._tables)
        self._standing.phase = "streaming"
        self._say(f"capture {self._spec.name}: streaming from {lsn_text(self._appender.position.end)}")
        self._stream.run(stopped, self._between)

    def _between(self) -> None:
        now = time.monotonic()
        overlaps = self._overlaps()
        if overlaps and max(self._stream.heard, self._appender.position.end) > max(each.until for each in overlaps):
            self._appender.append([], overlaps=None)
            self._relations.leave_out([])
        if now - self._asked_at > ASK_S:
            self._comparing.begin(self._tables)
            self._asked_at = now
        self._comparing.step(self._tables)
        if now - self._guarded_at > GUARD_S:
            self._guard()
            self._guarded_at = now
        self._standing.phase = "comparing" if self._comparing.busy else "streaming"
        self._standing.heard = self._stream.heard

    def _guard(self) -> None:
        settings, before = self._spec.settings, self._standing.kept
        kept = self._standing.kept = kept_for(self._connection, self._slot.name, settings)
        if kept.over and settings.drop_slot:
            raise Overrun
        if kept.over and not (before is not None and before.over):
            self._say(f"capture {self._spec.name}: {kept.alert}")

    def _overlaps(self) -> list[Overlap]:
        return [Overlap.from_json(told) for told in self._appender.state.get("overlaps") or []]
