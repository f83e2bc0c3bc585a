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
from dataclasses import asdict
from typing import Any

from headwater.capture.appender import Appender
from headwater.capture.position import SourcePosition, lsn_of, lsn_text
from headwater.capture.postgres.connection import Connection, connected
from headwater.capture.postgres.following import Following, Overrun
from headwater.capture.postgres.relations import Grown
from headwater.capture.postgres.slot import (
    Slot,
    check_server,
    check_slot,
    drop_slot,
    ensure_publication,
    make_slot,
    refuse_strange_slot,
    slot_name,
)
from headwater.capture.postgres.snapshot import Snapshot, planned
from headwater.capture.postgres.standing import Standing
from headwater.capture.postgres.tables import Table, describe, expanded
from headwater.capture.ranges import Piece
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.capture.tables import known_topics, made_topics, outbox_of
from headwater.clock import Clock, system_clock
from headwater.errors import CaptureGap
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
        tables = expanded(connection, self.spec.tables)
        return {name: describe(connection, self.spec.url, name, topic) for name, topic in tables.items()}

    # --- a run ---

    def run(self, stopped: threading.Event) -> None:
        """Returns when stopped; raises `SourceLost` when the database does not answer, and what else is wrong."""
        with connected(self.spec.url) as connection:
            self._run(connection, stopped)

    def _run(self, connection: Connection, stopped: threading.Event) -> None:
        url, name = self.spec.url, self.spec.name
        tables = self._describe(connection)  # 1
        check_server(connection, url, list(tables.values()))
        specs = made_topics(self._log, self.spec, tables)
        appender = self._standing.taken_over(Appender(self._log, name))  # 2
        outbox = outbox_of(appender, self.spec, tables)
        snapshot = Snapshot(url, appender, tables, specs, stopped=stopped, told=self._standing.tell, outbox=outbox)
        source = appender.state.get("source")
        if source is None or "begins" not in source:  # 3
            slot = self._first(connection, snapshot, tables)
        else:
            slot = self._known_slot(connection, Slot(**source), tables)
            ensure_publication(connection, url, name, list(tables.values()))
            self._resume(connection, snapshot)  # 4
        while not stopped.is_set():
            following = Following(
                self.spec, self._standing, connection, slot, tables, outbox, say=self._say, clock=self._clock
            )  # 5
            try:
                following.run(stopped)
            except Overrun:
                self._say(f"capture {name}: over its budget of WAL; a new slot, and all tables are compared")
                slot = self._anew(connection, tables)
            except Grown as grown:
                self._say(f"capture {name}: {grown.table.name} has a new column with values; it is compared")
                left = appender.state.get("comparing") or []
                appender.append([], comparing=sorted({*left, grown.table.name}))

    def _known_slot(self, connection: Connection, slot: Slot, tables: dict[str, Table]) -> Slot:
        appender = self._appender
        try:
            check_slot(connection, self.spec.url, self.spec.name, slot, appender.position)
        except CaptureGap:
            if "*" not in (appender.state.get("asked") or []):
                raise
            return self._anew(connection, tables)
        return slot

    def _first(self, connection: Connection, snapshot: Snapshot, tables: dict[str, Table]) -> Slot:
        appender, name = self._appender, self.spec.name
        if appender.state.get("source") is not None:  # a run that ended between these steps: what it made is ours
            drop_slot(connection, self.spec.url, slot_name(name))
        ensure_publication(connection, self.spec.url, name, list(tables.values()))
        if appender.state.get("source") is None:
            refuse_strange_slot(connection, self.spec.url, slot_name(name))
            appender.append([], source={"name": slot_name(name)})
        made = make_slot(connection, self.spec.url, name)
        try:
            pieces, about = planned(connection, list(tables.values()))
            told = [piece.as_json() for piece in pieces]
            state = {"source": asdict(made.slot), "pieces": told, "tables": sorted(tables)}
            appender.append([], SourcePosition(0, made.slot.begins), **state)
            self._read_pieces(snapshot, pieces, made.snapshot, None, about)
        finally:
            made.holder.finish()
        return made.slot

    def _anew(self, connection: Connection, tables: dict[str, Table]) -> Slot:
        """After a gap: a new slot, from which the stream goes on, and every table is compared with its topic."""
        appender, name = self._appender, self.spec.name
        drop_slot(connection, self.spec.url, slot_name(name))
        ensure_publication(connection, self.spec.url, name, list(tables.values()))
        made = make_slot(connection, self.spec.url, name)
        made.holder.finish()
        state = {"source": asdict(made.slot), "pieces": None, "overlaps": None, "asked": None}
        appender.append([], SourcePosition(0, made.slot.begins), **state, comparing=sorted(tables))
        return made.slot

    def _resume(self, connection: Connection, snapshot: Snapshot) -> None:
        """Pieces that are not done, from a snapshot of now; what it shows of the stream is left out of that later."""
        appender = self._appender
        pieces = [Piece.from_json(told) for told in appender.state.get("pieces") or []]
        if all(piece.done for piece in pieces):
            return
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            query = "SELECT pg_export_snapshot(), pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
            exported, seen, here = _row(connection, query)
            self._read_pieces(snapshot, pieces, exported, (seen, lsn_of(here)), 0)

    def _read_pieces(
        self, snapshot: Snapshot, pieces: list[Piece], exported: str, later: tuple[str, int] | None, about: int
    ) -> None:
        self._standing.phase = "snapshot"
        left = sum(not piece.done for piece in pieces)
        self._say(f"capture {self.spec.name}: reading {len({p.table for p in pieces})} tables, {left} ranges")
        snapshot.take(pieces, exported, later=later, about=about)

    @property
    def _appender(self) -> Appender:
        assert self._standing.appender is not None
        return self._standing.appender

    # --- how it stands ---

    def goal(self) -> int:
        with connected(self.spec.url) as connection:
            return lsn_of(_row(connection, "SELECT pg_current_wal_flush_lsn()::text")[0])

    def reached(self, goal: int) -> bool:
        standing = self._standing
        return standing.phase == "streaming" and max(standing.heard, standing.position.end) >= goal

    def status(self) -> CaptureStatus:
        standing = self._standing
        return CaptureStatus(
            self.spec.name,
            standing.phase,
            standing.rows,
            standing.read,
            standing.about,
            position=lsn_text(standing.position.end),
            **(standing.kept.told() if standing.kept is not None else {}),
        )


def _row(connection: Connection, query: str) -> Any:
    return connection.execute(query.encode()).fetchone()
