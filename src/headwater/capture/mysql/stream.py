"""The stream of changes: whole transactions, appended in the order of their commits.

1  Events come one by one (`wire`); row images are kept (`changes`) until their transaction has ended.
2  Transactions that have ended become one append, with the place where the last one ends: as soon as nothing more has
   come, or enough has.
3  A transaction that is larger than a round is staged round by round, in files that nothing lists, and appended when
   it commits. If the connection breaks before, the files are garbage and it comes again.
4  A statement that alters captured tables ends the stream: they are compared with their topics before it goes on.
5  When nothing is captured, an empty append now and then moves the position: a heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysqlreplication import event as events
from pymysqlreplication import row_event

from headwater.capture.appender import Appender
from headwater.capture.mysql.binlog import Binlog, place
from headwater.capture.mysql.changes import Changes
from headwater.capture.mysql.connection import code_of, shown, translated, user_of
from headwater.capture.mysql.gtid import Gtids
from headwater.capture.mysql.relations import Relations
from headwater.capture.mysql.statements import TableName, read_statement
from headwater.capture.mysql.wire import HEADER, MARIADB_GTID, Events
from headwater.capture.position import SourcePosition, binlog_text
from headwater.errors import CaptureGap, SourceRefused
from headwater.log.protocol import Part

GATHER_S = 0.1
"""So long transactions that come one upon the other are gathered."""
BETWEEN_S = 0.1
XID, GTIDS = 16, (33, 34)
"""Types of events: the end of a transaction, and its beginning on MySQL."""
STANDALONE = 1
"""The flag of a MariaDB transaction that is one statement, without an end of its own."""
INCIDENT = 26
UNREADABLE = {
    18: "binlog_format = ROW",
    39: "binlog_row_value_options = ''",
    40: "binlog_transaction_compression = OFF",
    **dict.fromkeys(range(165, 172), "log_bin_compress = OFF"),
}
"""Types of events that change rows in a way that is not read here, and what makes the server not write them."""


class _Stopped(Exception):
    """From within `Events.next`."""


class Stream:
    def __init__(
        self,
        url: str,
        number: int,
        capture: str,
        appender: Appender,
        relations: Relations,
        changes: Changes,
        *,
        heartbeat_s: float,
    ) -> None:
        self._url = url
        self._number = number
        self._capture = capture
        self._appender = appender
        self._relations = relations
        self._changes = changes
        self._heartbeat_s = heartbeat_s
        self._binlog = Binlog.from_json(appender.state.get("source"))
        self._file, self._file_place = "", 0
        self._inside = False
        """Of a transaction."""
        self._ended = 0
        """Where the last transaction ends that is not appended yet."""
        self._kept = 0
        """Events of rows before this transaction."""
        self._gtids = self._begun = Gtids.from_json(appender.state.get("gtid"), appender.position.commit)
        """Of the last transaction that has ended, and of the one that has begun."""
        self._transaction = ""
        self._prepared: set[str] = set()
        """Two-phase transactions that concern no table of ours."""
        self._since = self._beat_at = self._between_at = time.monotonic()
        self._stop = threading.Event()
        self._pending: Callable[[], bool] = lambda: False
        self._between: Callable[[], None] = lambda: None
        self.heard = 0
        """Up to here the server has told everything, and it is appended."""

    def run(self, stopped: threading.Event, between: Callable[[], None]) -> None:
        """Until stopped, the connection breaks, or tables were altered, which `comparing` in the state then tells.
        `between` is called between transactions, several times a second."""
        self._stop = stopped
        file, offset = binlog_text(self._binlog.name, self._appender.position.end).rsplit(":", 1)
        self._file, self._file_place, self._inside, self._ended = file, place(file, 0), False, 0
        self._changes.forget()
        self._begun = self._gtids
        try:
            with closing(Events(self._url, self._number, file, int(offset), self._keep)) as stream:
                self._pending, self._between = (lambda: stream.pending), between
                while not stopped.is_set() and not self._take(stream.next()):
                    pass
        except _Stopped:
            return
        except pymysql.MySQLError as error:
            if code_of(error) == ER.MASTER_FATAL_ERROR_READING_BINLOG:
                raise self._gap(f"the server cannot send its binlog from there ({error.args[-1]})") from error
            grant = f"GRANT REPLICATION SLAVE ON *.* TO {user_of(self._url)};"
            raise translated(error, self._url, grant=grant) from error

    def _keep(self, event: bytes) -> bool:
        """What comes with every transaction is dealt with here, past mysql-replication."""
        kind, end = event[5], int.from_bytes(event[14:18], "little")
        if kind == XID:
            self._commit(end)
            self._settle(end)
        elif kind == MARIADB_GTID:
            self._begin(inside=not event[HEADER + 12] & STANDALONE)
            self._begun = self._begun.after(event)
        elif kind not in GTIDS:
            kept = self._changes.keep(event, self._file_place | end)
            if kept and self._changes.large:
                self._refuse_to_go_on()
                self._changes.stage()
            return kept
        return True

    def _settle(self, end: int) -> None:
        """After an event: what has ended is appended, unless more is coming; then others have their turn."""
        if self._inside:
            return
        if self._ended and (not self._pending() or time.monotonic() - self._since > GATHER_S):
            self._append()
        if self._changes.any:
            return
        if end:
            self.heard = max(self.heard, self._file_place | end)
        if time.monotonic() - self._between_at > BETWEEN_S:
            self._between_at = time.monotonic()
            self._beat()
            self._between()
            self._refuse_to_go_on()

    def _refuse_to_go_on(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _take(self, event: Any) -> bool:
        """Whether tables were altered."""
        end = int(event.packet.log_pos)
        altered = False
        if isinstance(event, row_event.TableMapEvent):
            self._changes.learn(event)
        elif isinstance(event, events.RotateEvent):
            self._rotate(event)
            end = 0  # it is of the file before
        elif isinstance(event, events.FormatDescriptionEvent):
            self._format(event)
        elif isinstance(event, events.XAPrepareEvent):
            self._prepare(event, end)
        elif isinstance(event, events.QueryEvent):
            altered = self._statement(event, end)
        elif isinstance(event, events.NotImplementedEvent | events.ExecuteLoadQueryEvent):
            self._refuse_unreadable(event.event_type)
        if not altered:
            self._settle(end)
        return altered

    # --- transactions ---

    def _begin(self, *, inside: bool) -> None:
        self._inside, self._kept = inside, self._changes.kept

    def _prepare(self, event: Any, end: int) -> None:
        """The first phase of two: what it changes is told here, whether it is to be true only later."""
        if not event.one_phase:
            if self._changes.kept > self._kept:
                raise self._gap("a transaction was prepared there (XA PREPARE), and whether it commits is told later")
            self._prepared.add(self._transaction)
        self._commit(end)

    def _commit(self, end: int) -> None:
        self._inside = False
        here = place(self._file, end)
        if here <= max(self._appender.position.end, self._ended):
            raise self._gap(f"{self._file} has grown past 4 GB, where places in it are told wrongly")
        if not self._ended:
            self._since = time.monotonic()
        self._ended, self._gtids = here, self._begun

    def _append(self) -> None:
        """Step 2."""
        if self._changes.any:
            self._write(self._changes.give(), self._ended)
            self._beat_at = time.monotonic()
        self.heard = max(self.heard, self._ended)
        self._ended = 0

    def _write(self, parts: list[Part], end: int, **state: Any) -> None:
        """One append, up to `end`."""
        names = self._gtids.as_json()
        if names != self._appender.state.get("gtid"):
            state["gtid"] = names
        rows = sum(part.rows for part in parts)
        self._appender.append(parts, SourcePosition(self._gtids.number, end, rows), **state)

    def _beat(self) -> None:
        """Step 5. All that the server had to tell up to `heard` is appended."""
        now = time.monotonic()
        if self.heard > self._appender.position.end and now - self._beat_at >= self._heartbeat_s:
            self._write([], self.heard)
            self._beat_at = now

    # --- other events ---

    def _rotate(self, event: Any) -> None:
        self._file = str(event.next_binlog)
        self._file_place = place(self._file, 0)
        if event.timestamp:
            self._changes.forget_tables()

    def _format(self, event: Any) -> None:
        """The first event of a file, told again wherever the stream begins in it."""
        created, known = int(event.timestamp), self._binlog
        if place(self._file, 0) == self._appender.position.end >> 32 << 32:
            if known.created != created:
                raise self._gap(f"{self._file} is not the file that it was: somebody has begun the binlog anew")
            return
        if self._ended:
            self._append()
        self._binlog = replace(known, created=created)
        self._write([], place(self._file, 4), source=self._binlog.as_json())

    def _statement(self, event: Any, end: int) -> bool:
        """Step 4."""
        database = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
        told = read_statement(str(event.query), database, self._relations.captured)
        if told.meaning == "begin":
            self._begin(inside=True)
        elif told.meaning == "commit":
            self._commit(end)
        elif told.meaning == "prepared":
            return self._second_phase(str(event.query), end)
        elif told.meaning == "rows" and (told.tables or database in {of for of, _ in self._relations.captured}):
            raise self._gap(
                f"at {binlog_text(self._binlog.name, place(self._file, end))} a statement stands in the binlog instead "
                f"of its rows, because a session has set binlog_format: {str(event.query)[:80]!r}"
            )
        elif told.meaning in ("alter", "truncate") and told.tables:
            if self._inside:
                raise self._gap(f"table {told.tables[0][1]!r} was made anew there, with its rows (CREATE ... SELECT)")
            return self._altered(told.tables, end, emptied=told.meaning == "truncate")
        elif not self._inside:
            self._commit(end)
        return False

    def _second_phase(self, query: str, end: int) -> bool:
        """XA END names the transaction before it is prepared, XA COMMIT or ROLLBACK after."""
        _, word, name = query.split(None, 2)
        if word.upper() == "END":
            self._transaction = name
            return False
        harmless = word.upper() == "ROLLBACK" or name in self._prepared
        self._prepared.discard(name)
        if not harmless:  # prepared before this run: nobody knows what it has changed
            return self._altered(tuple(self._relations.captured), end, emptied=False)
        self._commit(end)
        return False

    def _altered(self, tables: tuple[TableName, ...], end: int, *, emptied: bool) -> bool:
        if self._ended:
            self._append()
        here, self._gtids = place(self._file, end), self._begun
        if emptied:
            self._changes.take_away(tables, here)
        names = [known.table.name for known in map(self._relations.of, tables) if known is not None]
        state = {} if emptied else {"comparing": sorted({*(self._appender.state.get("comparing") or []), *names})}
        self._write(self._changes.give(), here, **state)
        return not emptied

    # --- what cannot be ---

    def _gap(self, why: str) -> CaptureGap:
        here = binlog_text(self._binlog.name, self._appender.position.end)
        return CaptureGap(capture=self._capture, why=why, position=here)

    def _refuse_unreadable(self, kind: int) -> None:
        if kind == INCIDENT:
            raise self._gap("the server says in its binlog that it has lost changes")
        if kind in UNREADABLE:
            raise SourceRefused(
                source=shown(self._url),
                why=f"its binlog has events of type {kind}, which are not read",
                statement=f"SET GLOBAL {UNREADABLE[kind]};  -- then headwater capture resnapshot {self._capture} --all",
            )
