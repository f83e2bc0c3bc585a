"""One run of a capture: from what the log knows of it to the stream of changes.

1  The database is looked at: everything that would fail later is refused now, with what to run.
2  This run takes over: an older one is fenced.
3  The first time: publication, slot, and in the same breath the snapshot that it exports; the log knows of the slot
   before the first row is read. Later: the slot must be there, ours, and not past our position (C5).
4  What is left of the snapshot is read.
5  The stream goes on from the position, until stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import psycopg

from headwater.capture.appender import Appender
from headwater.capture.position import SourcePosition, lsn_of, lsn_text
from headwater.capture.postgres.changes import Changes
from headwater.capture.postgres.connection import Connection, connect, translated
from headwater.capture.postgres.messages import Messages
from headwater.capture.postgres.overlap import Seen, Shown
from headwater.capture.postgres.relations import Relations
from headwater.capture.postgres.slot import (
    Slot,
    check_server,
    check_slot,
    drop_slot,
    ensure_publication,
    make_slot,
    slot_name,
)
from headwater.capture.postgres.snapshot import Piece, Snapshot, planned
from headwater.capture.postgres.stream import Stream
from headwater.capture.postgres.tables import Table, describe, expanded
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.clock import Clock, system_clock
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec

Say = Callable[[str], None]


class PostgresCapture:
    def __init__(
        self, spec: CaptureSpec, log: Log, *, clock: Clock = system_clock, say: Say = lambda text: None
    ) -> None:
        self.spec = spec
        self._log = log
        self._clock = clock
        self._say = say
        self._appender: Appender | None = None
        self._phase = "starting"
        self._read = (0, 0)
        self._rows_before = 0
        self._server_at = 0

    # --- before it runs ---

    def topics(self) -> dict[str, TopicSpec]:
        """The topic of each table, made if it is not there: for the first time the database is asked."""
        known = {spec.name: spec for spec in self._log.topics()}
        if not any("*" in table for table in self.spec.tables) and all(t in known for t in self.spec.tables.values()):
            return {table: known[topic] for table, topic in self.spec.tables.items()}
        with closing(connect(self.spec.url)) as connection:
            return self._make_topics(self._describe(connection))

    def _describe(self, connection: Connection) -> dict[str, Table]:
        tables = expanded(connection, self.spec.tables)
        return {name: describe(connection, self.spec.url, name, topic) for name, topic in tables.items()}

    def _make_topics(self, tables: dict[str, Table]) -> dict[str, TopicSpec]:
        """A topic that is there keeps what it has; what the table has beyond it comes with the stream."""
        known = {spec.name: spec for spec in self._log.topics()}
        return {
            name: known.get(table.topic) or self._log.create(table.spec(partitions=self.spec.settings.partitions))
            for name, table in tables.items()
        }

    # --- a run ---

    def run(self, stopped: threading.Event) -> None:
        """Returns when stopped; raises `SourceLost` when the database does not answer, and what else is wrong."""
        try:
            with closing(connect(self.spec.url)) as connection:
                self._run(connection, stopped)
        except psycopg.Error as error:
            raise translated(error, self.spec.url) from error

    def _run(self, connection: Connection, stopped: threading.Event) -> None:
        url, name = self.spec.url, self.spec.name
        tables = self._describe(connection)  # 1
        check_server(connection, url, list(tables.values()))
        specs = self._make_topics(tables)
        self._rows_before = self.status().rows
        appender = self._appender = Appender(self._log, name)  # 2
        snapshot = Snapshot(url, appender, tables, specs, stopped=stopped, told=self._tell)
        source = appender.state.get("source")
        if source is None or "begins" not in source:  # 3
            slot = self._first(connection, snapshot, list(tables.values()))
        else:
            slot = Slot(**source)
            check_slot(connection, url, name, slot, appender.position)
            ensure_publication(connection, url, name, list(tables.values()))
            self._resume(connection, snapshot)  # 4
        if stopped.is_set():
            return
        relations = Relations(self._log, connection, tables)
        self._leave_out(relations, tables)
        changes = Changes(appender, relations.learn, Messages(appender, name))
        stream = Stream(
            url, slot.name, appender, changes, heartbeat_s=self.spec.settings.heartbeat_s, clock=self._clock
        )
        self._phase = "streaming"
        self._say(f"capture {name}: streaming from {lsn_text(appender.position.end)}")
        stream.run(stopped, self._between)  # 5

    def _first(self, connection: Connection, snapshot: Snapshot, tables: list[Table]) -> Slot:
        appender, name = self._appender, self.spec.name
        assert appender is not None
        if appender.state.get("source") is not None:  # a run that ended between these steps: what it made is ours
            drop_slot(connection, slot_name(name))
        appender.append([], source={"name": slot_name(name)})
        ensure_publication(connection, self.spec.url, name, tables)
        made = make_slot(connection, self.spec.url, name)
        try:
            pieces, about = planned(connection, tables)
            told = [piece.as_json() for piece in pieces]
            appender.append([], SourcePosition(0, made.slot.begins), source=asdict(made.slot), pieces=told)
            self._read_pieces(snapshot, pieces, made.snapshot, None, about)
        finally:
            made.holder.finish()
        return made.slot

    def _resume(self, connection: Connection, snapshot: Snapshot) -> None:
        """Pieces that are not done, from a snapshot of now; what it shows of the stream is left out of that later."""
        appender = self._appender
        assert appender is not None
        pieces = [Piece.from_json(told) for told in appender.state.get("pieces") or []]
        if all(piece.done for piece in pieces):
            return
        _, about = planned(connection, [])
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            exported, seen, here = _row(
                connection,
                "SELECT pg_export_snapshot(), pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text",
            )
            appender.append([], overlap_until=lsn_of(here))
            self._read_pieces(snapshot, pieces, exported, seen, about)

    def _read_pieces(
        self, snapshot: Snapshot, pieces: list[Piece], exported: str, seen: str | None, about: int
    ) -> None:
        self._phase = "snapshot"
        left = sum(not piece.done for piece in pieces)
        self._say(f"capture {self.spec.name}: reading {len({p.table for p in pieces})} tables, {left} ranges")
        snapshot.take(pieces, exported, seen, about=about)

    def _leave_out(self, relations: Relations, tables: dict[str, Table]) -> None:
        appender = self._appender
        assert appender is not None
        for told in appender.state.get("pieces") or []:
            piece = Piece.from_json(told)
            if piece.seen is not None and piece.table in tables:
                relations.of(tables[piece.table]).shown.append(Shown(Seen.parse(piece.seen), piece.range))

    def _between(self, server: SourcePosition) -> None:
        self._server_at = max(self._server_at, server.end)

    def _tell(self, read: int, about: int) -> None:
        self._read = (read, about)

    # --- how it stands ---

    def goal(self) -> int:
        with closing(connect(self.spec.url)) as connection:
            return lsn_of(_row(connection, "SELECT pg_current_wal_flush_lsn()::text")[0])

    def reached(self, goal: int) -> bool:
        appender = self._appender
        return (
            self._phase == "streaming" and appender is not None and max(self._server_at, appender.position.end) >= goal
        )

    def status(self) -> CaptureStatus:
        appender = self._appender
        position = appender.position.end if appender is not None else 0
        return CaptureStatus(
            self.spec.name,
            self._phase,
            self._rows_before + (appender.rows if appender is not None else 0),
            *self._read,
            position=lsn_text(position),
        )


def _row(connection: Connection, query: str) -> Any:
    return connection.execute(query.encode()).fetchone()
