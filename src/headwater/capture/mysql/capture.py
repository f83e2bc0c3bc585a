"""One run of a capture: from what the log knows of it to the stream of changes.

1  The database is looked at: everything that would fail later is refused now, with what to run.
2  This run takes over: an older one is fenced.
3  The first time: the place in the binlog from which the stream begins, known to the log before the first row is read.
   Later: the binlog must be the one that we know, and still have everything from our position on (C5).
4  What is left of the snapshot is read.
5  The stream goes on from the position, until stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pymysql

from headwater.capture.appender import Appender
from headwater.capture.mysql.binlog import Binlog, Server, check_binlog, check_server, end_of, place, server_id
from headwater.capture.mysql.connection import Connection, ask, connected, translated, user_of
from headwater.capture.mysql.following import Following
from headwater.capture.mysql.gtid import Gtids
from headwater.capture.mysql.snapshot import Snapshot, planned
from headwater.capture.mysql.standing import Standing
from headwater.capture.mysql.tables import Table, describe, expanded
from headwater.capture.mysql.wire import begun, found
from headwater.capture.position import SourcePosition, position_text
from headwater.capture.ranges import Piece
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.capture.tables import known_topics, made_topics, outbox_of
from headwater.errors import BadCapture, CaptureGap
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec

Say = Callable[[str], None]


class MysqlCapture:
    def __init__(self, spec: CaptureSpec, log: Log, *, say: Say = lambda text: None) -> None:
        if spec.settings.wal_budget_bytes is not None:
            raise BadCapture(
                what="wal_budget_bytes is for PostgreSQL", do="Leave it out: see binlog_expire_logs_seconds"
            )
        self.spec = spec
        self._log = log
        self._say = say
        self._standing = Standing()

    # --- before it runs ---

    def topics(self) -> dict[str, TopicSpec]:
        """The topic of each table, made if it is not there: for the first time the database is asked."""
        known = known_topics(self._log, self.spec)
        if known is not None:
            return known
        with connected(self.spec.url) as connection:
            return made_topics(self._log, self.spec, self._describe(connection))

    def _describe(self, connection: Connection) -> dict[str, Table]:
        tables = expanded(connection, self.spec.url, self.spec.tables)
        return {name: describe(connection, self.spec.url, name, topic) for name, topic in tables.items()}

    # --- a run ---

    def run(self, stopped: threading.Event) -> None:
        """Returns when stopped; raises `SourceLost` when the database does not answer, and what else is wrong."""
        with connected(self.spec.url) as connection:
            self._run(connection, stopped)

    def _run(self, connection: Connection, stopped: threading.Event) -> None:
        url, name = self.spec.url, self.spec.name
        server = Server.of(connection)
        tables = self._describe(connection)  # 1
        check_server(connection, url, server, list(tables.values()))
        specs = made_topics(self._log, self.spec, tables)
        appender = self._standing.taken_over(Appender(self._log, name))  # 2
        outbox = outbox_of(appender, self.spec, tables)
        source = appender.state.get("source")
        if source is None:  # 3
            pieces, about = planned(connection, list(tables.values()))
            state = {"pieces": [piece.as_json() for piece in pieces], "tables": sorted(tables)}
            self._begin(connection, server, **state)
        else:
            about = 0
            self._check(connection, server, Binlog.from_json(source), tables)
        pieces = [Piece.from_json(told) for told in appender.state.get("pieces") or []]
        left = [piece for piece in pieces if not piece.done]
        if left:  # 4
            self._standing.phase = "snapshot"
            self._say(f"capture {name}: reading {len({piece.table for piece in left})} tables, {len(left)} ranges")
            Snapshot(
                url, server, appender, tables, specs, stopped=stopped, told=self._standing.tell, outbox=outbox
            ).take(pieces, about)
        if not stopped.is_set():
            Following(self.spec, self._standing, connection, server, tables, outbox, say=self._say).run(stopped)  # 5

    def _begin(self, connection: Connection, server: Server, **state: object) -> None:
        """From where the server writes now. A transaction that is in the binlog, but not to be seen yet, is shown by no
        snapshot that is taken now: so the stream begins before any snapshot does, and each says what it has shown."""
        file, offset = end_of(connection, self.spec.url, server)
        try:
            created = begun(self.spec.url, server_id(self.spec.name, self.spec.url), file, offset)
        except pymysql.MySQLError as error:
            grant = f"GRANT REPLICATION SLAVE ON *.* TO {user_of(self.spec.url)};"
            raise translated(error, self.spec.url, grant=grant) from error
        binlog = Binlog(file.rpartition(".")[0], server.identity, created)
        gtids = Gtids()
        if server.maria:
            gtids = Gtids.parse(str(ask(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, offset))[0][0] or ""))
        here = SourcePosition(gtids.number, place(file, offset))
        self._appender.append([], here, source=binlog.as_json(), gtid=gtids.as_json(), **state)

    def _check(self, connection: Connection, server: Server, known: Binlog, tables: dict[str, Table]) -> None:
        appender = self._appender
        anew = "*" in (appender.state.get("asked") or [])
        gtids = Gtids.from_json(appender.state.get("gtid"), appender.position.commit)
        if server.maria and server.identity != known.server and gtids.text and not anew:
            self._fail_over(server, gtids)
            return
        try:
            check_binlog(connection, self.spec.name, server, known, appender.position)
        except CaptureGap:
            if not anew:
                raise
        if anew:  # the stream goes on from now, and every table is compared with its topic
            state = {"pieces": None, "overlaps": None, "asked": None, "comparing": sorted(tables)}
            self._begin(connection, server, **state)

    def _fail_over(self, server: Server, gtids: Gtids) -> None:
        """To a server that has taken the place of the one we know, if its binlog has what we have captured, and all
        that came after. Places of overlaps mean nothing there: their tables are compared."""
        try:
            file, offset, created = found(self.spec.url, server_id(self.spec.name, self.spec.url), gtids.text)
        except pymysql.MySQLError as error:
            why = f"this is another server, whose binlog does not go on from there ({error.args[-1]})"
            raise CaptureGap(capture=self.spec.name, why=why, position=f"GTID {gtids.text}") from error
        state = self._appender.state
        shown = [each["table"] for each in state.get("overlaps") or []]
        comparing = sorted({*(state.get("comparing") or []), *shown})
        binlog = Binlog(file.rpartition(".")[0], server.identity, created)
        here = SourcePosition(gtids.number, place(file, offset))
        self._appender.append([], here, source=binlog.as_json(), overlaps=None, comparing=comparing)
        self._say(f"capture {self.spec.name}: goes on after GTID {gtids.text}, on another server")

    @property
    def _appender(self) -> Appender:
        assert self._standing.appender is not None
        return self._standing.appender

    # --- how it stands ---

    def goal(self) -> int:
        with connected(self.spec.url) as connection:
            return place(*end_of(connection, self.spec.url, Server.of(connection)))

    def reached(self, goal: int) -> bool:
        """A table that was altered is not, until it has been compared."""
        standing = self._standing
        there = max(standing.heard, standing.position.end) >= goal
        return there and standing.phase == "streaming" and not self._appender.state.get("comparing")

    def status(self) -> CaptureStatus:
        standing = self._standing
        source = standing.appender.state.get("source") if standing.appender is not None else None
        position = position_text(source, standing.position.end) if source is not None else ""
        return CaptureStatus(
            self.spec.name,
            standing.phase,
            standing.rows,
            standing.read,
            standing.about,
            position=position,
            lag_bytes=standing.lag_bytes,
        )
