"""Following the stream, and between its transactions what else there is to do: compare tables, forget overlaps that are
over, see how far the server is ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.capture.mysql.binlog import Binlog, Server, end_of, place, server_id
from headwater.capture.mysql.changes import Changes
from headwater.capture.mysql.comparing import Comparing
from headwater.capture.mysql.connection import Connection
from headwater.capture.mysql.overlap import Overlap
from headwater.capture.mysql.relations import Relations
from headwater.capture.mysql.standing import Standing
from headwater.capture.mysql.stream import Stream
from headwater.capture.mysql.tables import Table
from headwater.capture.outbox import Outbox
from headwater.capture.position import binlog_text
from headwater.capture.spec import CaptureSpec

ASK_S, LOOK_S = 1.0, 5.0
"""How often it is looked whether somebody asks for something, and how far the server is."""


class Following:
    def __init__(
        self,
        spec: CaptureSpec,
        standing: Standing,
        connection: Connection,
        server: Server,
        tables: dict[str, Table],
        outbox: Outbox | None,
        *,
        say: Callable[[str], None],
    ) -> None:
        appender = standing.appender
        assert appender is not None
        self._spec = spec
        self._standing = standing
        self._connection = connection
        self._server = server
        self._tables = tables
        self._appender = appender
        self._say = say
        self._relations = Relations(appender.log, connection, spec.url, tables)
        self._comparing = Comparing(spec.url, server, connection, appender, self._relations, outbox)
        self._stream = Stream(
            spec.url,
            server_id(spec.name, spec.url),
            spec.name,
            appender,
            self._relations,
            Changes(appender, self._relations, outbox),
            heartbeat_s=spec.settings.heartbeat_s,
        )
        self._asked_at = self._looked_at = 0.0
        self._relations.leave_out(self._overlaps())

    def run(self, stopped: threading.Event) -> None:
        state = self._appender.state
        new = [name for name in self._tables if name not in (state.get("tables") or [])]
        if new:
            self._appender.append([], comparing=[*(state.get("comparing") or []), *new])
        while not stopped.is_set():
            self._comparing.begin(self._tables)  # tables that were altered, or asked for: the stream may need it
            while self._comparing.busy and not stopped.is_set():
                self._standing.phase = "comparing"
                self._comparing.step(self._tables)
            if stopped.is_set():
                return
            self._standing.phase = "streaming"
            here = binlog_text(Binlog.from_json(state.get("source")).name, self._appender.position.end)
            self._say(f"capture {self._spec.name}: streaming from {here}")
            self._stream.run(stopped, self._between)
            self._standing.phase = "comparing"

    def _between(self) -> None:
        now = time.monotonic()
        overlaps = self._overlaps()
        if overlaps and self._appender.position.end > max(each.until for each in overlaps):
            self._appender.append([], overlaps=None)
            self._relations.leave_out([])
        if now - self._asked_at > ASK_S:
            self._comparing.begin(self._tables)
            self._asked_at = now
        self._comparing.step(self._tables)
        if now - self._looked_at > LOOK_S:
            ahead = place(*end_of(self._connection, self._spec.url, self._server))
            self._standing.lag_bytes = max(0, ahead - max(self._stream.heard, self._appender.position.end))
            self._looked_at = now
        self._standing.phase = "comparing" if self._comparing.busy else "streaming"
        self._standing.heard = self._stream.heard

    def _overlaps(self) -> list[Overlap]:
        return [Overlap.from_json(told) for told in self._appender.state.get("overlaps") or []]
