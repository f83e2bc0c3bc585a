"""Following the binlog, and seeing how far the server is ahead. When a table was altered, the stream ends until it
has been compared."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.capture import following
from headwater.capture.mysql.binlog import Binlog, Server, end_of, place, server_id
from headwater.capture.mysql.changes import Changes
from headwater.capture.mysql.comparing import Comparing
from headwater.capture.mysql.connection import Connection
from headwater.capture.mysql.relations import Relations
from headwater.capture.mysql.standing import Standing
from headwater.capture.mysql.stream import Stream
from headwater.capture.mysql.tables import Table
from headwater.capture.outbox import Outbox
from headwater.capture.position import binlog_text
from headwater.capture.spec import CaptureSpec


class Following(following.Following[Table]):
    _standing: Standing

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
        self._connection = connection
        self._server = server
        self._say = say
        relations = Relations(appender.log, connection, spec.url, tables)
        super().__init__(standing, tables, Comparing(spec.url, server, connection, appender, relations, outbox))
        self._stream = Stream(
            spec.url,
            server_id(spec.name, spec.url),
            spec.name,
            appender,
            relations,
            Changes(appender, relations, outbox),
            heartbeat_s=spec.settings.heartbeat_s,
        )

    def run(self, stopped: threading.Event) -> None:
        self.ask_for_new()
        while not stopped.is_set():
            self.compare(stopped)
            if stopped.is_set():
                return
            self._standing.phase = "streaming"
            source = Binlog.from_json(self._appender.state.get("source"))
            here = binlog_text(source.name, self._appender.position.end)
            self._say(f"capture {self._spec.name}: streaming from {here}")
            self._stream.run(stopped, self.between)
            self._standing.phase = "comparing"

    @property
    def heard(self) -> int:
        return self._stream.heard

    def past(self, until: int) -> bool:
        return self._appender.position.end > until

    def look(self) -> None:
        ahead = place(*end_of(self._connection, self._spec.url, self._server))
        self._standing.lag_bytes = max(0, ahead - max(self.heard, self._appender.position.end))
