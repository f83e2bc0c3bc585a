"""Following a slot, and seeing what the server keeps for us."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.capture import following
from headwater.capture.outbox import Outbox
from headwater.capture.position import lsn_text
from headwater.capture.postgres.changes import Changes
from headwater.capture.postgres.comparing import Comparing
from headwater.capture.postgres.connection import Connection
from headwater.capture.postgres.guard import kept_for
from headwater.capture.postgres.messages import Messages
from headwater.capture.postgres.relations import Relations
from headwater.capture.postgres.slot import Slot
from headwater.capture.postgres.standing import Standing
from headwater.capture.postgres.stream import Stream
from headwater.capture.postgres.tables import Table
from headwater.capture.spec import CaptureSpec
from headwater.clock import Clock


class Overrun(Exception):
    """The server keeps more WAL for us than it may, and we are to let it go."""


class Following(following.Following[Table]):
    _standing: Standing

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
        self._say = say
        self._connection = connection
        self._slot = slot
        relations = Relations(appender.log, connection, tables)
        changes = Changes(appender, relations.learn, Messages(appender, spec.name), outbox)
        super().__init__(standing, tables, Comparing(spec.url, connection, appender, relations, changes, outbox))
        self._stream = Stream(
            spec.url, slot.name, appender, changes, heartbeat_s=spec.settings.heartbeat_s, clock=clock
        )

    def run(self, stopped: threading.Event) -> None:
        self.ask_for_new()
        self.compare(stopped)
        self._standing.phase = "streaming"
        self._say(f"capture {self._spec.name}: streaming from {lsn_text(self._appender.position.end)}")
        self._stream.run(stopped, self.between)

    @property
    def heard(self) -> int:
        return self._stream.heard

    def look(self) -> None:
        settings, before = self._spec.settings, self._standing.kept
        kept = self._standing.kept = kept_for(self._connection, self._slot.name, settings)
        if kept.over and settings.drop_slot:
            raise Overrun
        if kept.over and not (before is not None and before.over):
            self._say(f"capture {self._spec.name}: {kept.alert}")
