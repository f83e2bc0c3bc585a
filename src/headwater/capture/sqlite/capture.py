"""One run of the capture of a SQLite file.

1  Triggers are put in place, in one transaction of the database, for tables that have none or have new columns.
2  Their tables are compared with their topics: read in one transaction with the counter, so that rows and position
   are of the same moment. The first time every row differs, for the topic is empty.
3  Then: all changes since the position, read in one transaction, which ends where transactions of the database end,
   and appended with the counter as the position.
4  Only then are they deleted from the database.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.current import rows_in
from headwater.capture.differences import differences
from headwater.capture.position import SourcePosition
from headwater.capture.spec import CaptureSpec
from headwater.capture.sqlite.tables import Table, describe, quoted
from headwater.capture.sqlite.triggers import COUNTER, changes_of, in_place, made
from headwater.capture.status import CaptureStatus
from headwater.errors import BadCapture, SourceLost, SourceRefused
from headwater.log.protocol import Log, Part
from headwater.log.spec import TopicSpec

SCHEME = "sqlite:"
POLL_S = 0.05
BUSY_S = 10.0
ROWS = 10_000
"""Rows that are in memory at once."""

Say = Callable[[str], None]


class SqliteCapture:
    def __init__(self, spec: CaptureSpec, log: Log, *, say: Say = lambda text: None) -> None:
        if spec.settings.outbox is not None or spec.settings.wal_budget_bytes is not None:
            raise BadCapture(what="outbox and wal_budget_bytes are for PostgreSQL", do="Leave them out")
        self.spec = spec
        self._log = log
        self._say = say
        self._path = Path(spec.url.removeprefix(SCHEME))
        self._appender: Appender | None = None
        self._phase = "starting"
        self._schema = -1
        """The version of the database's schema that the triggers are made for."""
        self._specs: dict[Table, TopicSpec] = {}

    def topics(self) -> dict[str, TopicSpec]:
        with closing(self._open()) as connection:
            return {name: self._topic(table) for name, table in self._describe(connection).items()}

    def run(self, stopped: threading.Event) -> None:
        try:
            with closing(self._open()) as connection:
                appender = self._appender = Appender(self._log, self.spec.name)
                self._settle(connection, appender)
                self._phase = "streaming"
                version = (-1, -1)
                while not stopped.is_set():
                    now = (_one(connection, "PRAGMA data_version"), _one(connection, "PRAGMA schema_version"))
                    if now == version:
                        stopped.wait(POLL_S)
                        continue
                    if now[1] != self._schema:
                        self._settle(connection, appender)
                    self._take(connection, appender)
                    version = now
        except sqlite3.Error as error:
            raise SourceLost(source=self.spec.url, why=str(error)) from error

    def goal(self) -> int:
        with closing(self._open()) as connection:
            there = _one(connection, "SELECT count(*) FROM sqlite_schema WHERE name = ?", COUNTER)
            return _one(connection, f"SELECT n FROM {COUNTER}") if there else 0

    def reached(self, goal: int) -> bool:
        appender = self._appender
        if self._phase != "streaming" or appender is None or appender.position.end < goal:
            return False
        with closing(self._open()) as connection:
            return _one(connection, "PRAGMA schema_version") == self._schema

    def status(self) -> CaptureStatus:
        appender = self._appender
        rows, end = (appender.rows, appender.position.end) if appender is not None else (0, 0)
        return CaptureStatus(self.spec.name, self._phase, rows, position=str(end))

    # --- the steps ---

    def _settle(self, connection: sqlite3.Connection, appender: Appender) -> None:
        """Until nothing is left to do for the schema as it is: our triggers change it, and so may others meanwhile."""
        while True:
            schema = _one(connection, "PRAGMA schema_version")
            self._settle_tables(connection, appender)
            if _one(connection, "PRAGMA schema_version") == schema:
                self._schema = schema
                return

    def _settle_tables(self, connection: sqlite3.Connection, appender: Appender) -> None:
        """Steps 1 and 2, for tables whose columns are not those that their triggers know."""
        known: dict[str, Any] = appender.state.get("columns") or {}
        for name, table in self._describe(connection).items():
            if in_place(connection, table) and known.get(name) == [list(column) for column in table.columns]:
                continue
            self._say(f"capture {self.spec.name}: reading table {name}")
            self._take(connection, appender, settled=set(known))
            with _transaction(connection, "IMMEDIATE"):
                for statement in made(table):
                    connection.execute(statement)
            known = {**known, name: [list(column) for column in table.columns]}
            self._compare(connection, appender, table, known)

    def _compare(self, connection: sqlite3.Connection, appender: Appender, table: Table, known: dict[str, Any]) -> None:
        spec = self._topic(table)
        with _transaction(connection, "DEFERRED"):
            n = _one(connection, f"SELECT n FROM {COUNTER}")
            _, others = self._read(connection, appender, n, without=table.name, settled=set(known))
            batches = [table.batch(spec, rows, [False] * len(rows)) for rows in _rows(connection, table)]
        held = pa.Table.from_batches([batch.select(spec.schema.names) for batch in batches], spec.schema)
        told = rows_in(self._log, spec, lambda rows: pa.repeat(pa.scalar(True), rows.num_rows))
        parts = [part for batch in differences(spec, told, held) for part in appender.stage(spec, batch)]
        appender.append([*others, *parts], SourcePosition(0, n), columns=known)
        self._forget(connection, n)

    def _take(self, connection: sqlite3.Connection, appender: Appender, *, settled: set[str] | None = None) -> None:
        """Steps 3 and 4."""
        with _transaction(connection, "DEFERRED"):
            there = _one(connection, "SELECT count(*) FROM sqlite_schema WHERE name = ?", COUNTER)
            n = _one(connection, f"SELECT n FROM {COUNTER}") if there else 0
            if n <= appender.position.end:
                return
            changes, parts = self._read(connection, appender, n, settled=settled)
        appender.append(parts, SourcePosition(0, n, changes))
        self._forget(connection, n)

    def _read(
        self,
        connection: sqlite3.Connection,
        appender: Appender,
        n: int,
        *,
        without: str | None = None,
        settled: set[str] | None = None,
    ) -> tuple[int, list[Part]]:
        """The changes up to `n` that are not appended yet, of all tables whose triggers we know, but one."""
        changes, parts = 0, []
        for name, table in self._known(connection, appender, settled).items():
            if name == without:
                continue
            spec = self._topic(table)
            query = f"SELECT * FROM {changes_of(table)} WHERE n > ? AND n <= ? ORDER BY n"
            for rows in _pieces(connection.execute(query, (appender.position.end, n))):
                batch = table.batch(spec, [row[2:] for row in rows], [bool(row[1]) for row in rows])
                parts += appender.stage(spec, batch)
                changes += len(rows)
        return changes, parts

    def _known(self, connection: sqlite3.Connection, appender: Appender, settled: set[str] | None) -> dict[str, Table]:
        """Tables as their triggers know them, which may be older than they are."""
        columns: dict[str, Any] = appender.state.get("columns") or {}
        return {
            name: Table(name, table.topic, tuple((column, kind) for column, kind in columns[name]), table.key)
            for name, table in self._describe(connection).items()
            if name in columns and in_place(connection, table) and (settled is None or name in settled)
        }

    def _forget(self, connection: sqlite3.Connection, n: int) -> None:
        with _transaction(connection, "IMMEDIATE"):
            for table in self._describe(connection).values():
                if in_place(connection, table):
                    connection.execute(f"DELETE FROM {changes_of(table)} WHERE n <= ?", (n,))

    # --- the database ---

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise SourceRefused(source=self.spec.url, why="there is no such file", statement=f"sqlite3 {self._path}")
        return sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S)

    def _describe(self, connection: sqlite3.Connection) -> dict[str, Table]:
        return {name: describe(connection, self.spec.url, name, topic) for name, topic in self.spec.tables.items()}

    def _topic(self, table: Table) -> TopicSpec:
        if table not in self._specs:
            self._specs[table] = self._log.create(table.spec(partitions=self.spec.settings.partitions))
        return self._specs[table]


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _rows(connection: sqlite3.Connection, table: Table) -> Iterator[list[tuple[Any, ...]]]:
    names = ", ".join(quoted(name) for name in table.names)
    yield from _pieces(connection.execute(f"SELECT {names} FROM {quoted(table.name)}"))


def _pieces(cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
    piece: list[tuple[Any, ...]] = []
    for row in cursor:
        piece.append(row)
        if len(piece) == ROWS:
            yield piece
            piece = []
    if piece:
        yield piece


def _one(connection: sqlite3.Connection, query: str, *given: Any) -> int:
    return int(connection.execute(query, given).fetchone()[0])
