"""What is to be told to somebody outside, in a SQLite file: written with the mark in one transaction, sent from there.

So every change becomes a message once, and a message is sent until somebody took it, under the same id each time: the
other side may get it twice, if its answer was lost, and knows it by the id. Messages are sent in their order, but one
that fails waits for its next try while others pass it by.

    mark(version, mark)                           messages(id, message_id, body, tries, due_us, state, said)
    state: waiting, failed (given up, until it is sent again by hand); what was sent is removed
    sender(disabled, held_until_us, failing)      why nothing is sent; until when; failures in a row
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import apsw
import pyarrow as pa

from headwater.clock import Clock, system_clock
from headwater.errors import StoreFailed, StoreTaken, UsageError
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.net import Net, net

SCHEDULE_S = (0.0, 5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""After how long each try follows the one before: that of Standard Webhooks. After the last, a message has failed."""
JITTER = 0.1
MOST_WAITING = 10_000
HOLD_S = (5.0, 10.0, 20.0, 60.0, 300.0)
"""How long nothing is sent after so many failures in a row: a server that is down is not called for each message."""
LONGEST_HOLD_S = 86400.0
SECOND = 1_000_000


@dataclass(frozen=True)
class Answer:
    """`gone`: never again. `throttled`: later, and all others too."""

    kind: Literal["sent", "failed", "throttled", "gone"]
    said: str
    after_s: float | None = None


@dataclass(frozen=True)
class Message:
    message_id: str
    body: bytes
    tries: int
    due_us: int
    said: str


class Messenger(Protocol):
    """How changes are worded, and brought to whom."""

    def compose(self, served: Served, some: Net, mark: Mark, *, restart: bool) -> Iterator[bytes]:
        """The messages of one apply. `restart`: the receiver is to forget what it knew."""

    def send(self, message_id: str, body: bytes, now_us: int) -> Answer: ...


class Outbox:
    """A target. With `start`, a thread sends what is due; without, `deliver` does."""

    def __init__(
        self,
        path: Path,
        served: Served,
        messenger: Messenger,
        *,
        name: str,
        clock: Clock = system_clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._served = served
        self._messenger = messenger
        self._name = name
        self._clock = clock
        self._jitter = jitter
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._local = threading.local()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as connection:
            connection.execute(_TABLES)
            found = connection.execute("SELECT version FROM mark").fetchone()
            if found is None or found[0] != served.version:
                self._empty(connection)
        path.chmod(0o600)

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = apsw.Connection(str(self._path))
                connection.set_busy_timeout(10_000)
                connection.pragma("journal_mode", "wal")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except apsw.Error as error:
            raise StoreFailed(store=self._name, why=f"its outbox {self._path}: {error}") from error

    def _mark(self, connection: apsw.Connection) -> Mark:
        row: Any = connection.execute("SELECT version, mark FROM mark").fetchone()
        if row is None or row[0] != self._served.version:
            raise StoreTaken(store=self._name, by=row[0] if row else "")
        return Mark.parse(row[1])

    def _empty(self, connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM messages")
        connection.execute("INSERT OR REPLACE INTO mark VALUES (1, ?, ?)", (self._served.version, str(NOTHING)))

    def mark(self) -> Mark:
        with self._transaction() as connection:
            return self._mark(connection)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        some = net(changes, self._served.schema)
        with self._transaction() as connection:
            found = self._mark(connection)
            expect(found, after, store=self._name)
            self._refuse_if_stuck(connection)
            if some.here.num_rows or some.gone.num_rows:
                restart = found == NOTHING
                for part, body in enumerate(self._messenger.compose(self._served, some, mark, restart=restart)):
                    told = f"{self._name}\n{self._served.version}\n{mark.number}\n{part}"
                    message_id = "msg_" + hashlib.sha256(told.encode()).hexdigest()[:32]
                    connection.execute(
                        "INSERT INTO messages(message_id, body, tries, due_us, state, said)"
                        " VALUES (?, ?, 0, ?, 'waiting', '')",
                        (message_id, body, self._clock()),
                    )
            connection.execute("UPDATE mark SET mark = ?", (str(mark),))
        self._wake.set()

    def _refuse_if_stuck(self, connection: apsw.Connection) -> None:
        disabled = str(_one(connection, "SELECT disabled FROM sender"))
        if disabled:
            raise StoreFailed(
                store=self._name, why=f"it is disabled: {disabled}", do="Enable it once the receiver is back"
            )
        waiting = _one(connection, "SELECT count(*) FROM messages WHERE state = 'waiting'")
        if waiting >= MOST_WAITING:
            raise StoreFailed(store=self._name, why=f"{waiting} messages wait to be sent")

    def clear(self) -> None:
        with self._transaction() as connection:
            self._mark(connection)
            self._empty(connection)

    # --- sending ---

    def start(self) -> None:
        self._thread = threading.Thread(target=self._send_on, name=f"send {self._name}", daemon=True)
        self._thread.start()

    def _send_on(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                due = self.deliver()
            except StoreFailed:  # of our own file; whoever applies is told, too
                due = self._clock() + int(HOLD_S[0] * SECOND)
            wait_s = None if due is None else max(0.0, (due - self._clock()) / SECOND)
            if not self._stop.is_set():
                self._wake.wait(wait_s)
        self._close_here()

    def deliver(self) -> int | None:
        """Send what is due, until nothing is; when the next one will be, in µs, or None."""
        while not self._stop.is_set():
            now = self._clock()
            with self._transaction() as connection:
                disabled, held, _ = _row(connection, "SELECT disabled, held_until_us, failing FROM sender")
                row: Any = connection.execute(
                    "SELECT id, message_id, body, tries, due_us FROM messages WHERE state = 'waiting'"
                    " ORDER BY due_us > ?, CASE WHEN due_us > ? THEN due_us ELSE id END LIMIT 1",
                    (now, now),
                ).fetchone()
            if row is None or disabled:
                return None
            place, message_id, body, tries, due = row
            if (next_us := int(max(due, held))) > now:
                return next_us
            self._settle(place, tries + 1, self._messenger.send(message_id, body, now))
        return None

    def _settle(self, place: int, tries: int, answer: Answer) -> None:
        now = self._clock()
        with self._transaction() as connection:
            if answer.kind == "sent":
                connection.execute("DELETE FROM messages WHERE id = ?", (place,))
                connection.execute("UPDATE sender SET failing = 0, held_until_us = 0")
                return
            given_up = tries >= len(SCHEDULE_S)
            wait_s = 0.0 if given_up else SCHEDULE_S[tries] * (1 + JITTER * self._jitter())
            wait_s = max(wait_s, min(answer.after_s or 0.0, LONGEST_HOLD_S))
            connection.execute(
                "UPDATE messages SET tries = ?, due_us = ?, state = ?, said = ? WHERE id = ?",
                (tries, now + int(wait_s * SECOND), "failed" if given_up else "waiting", answer.said, place),
            )
            failing = _one(connection, "SELECT failing FROM sender") + 1
            hold_s = HOLD_S[min(failing, len(HOLD_S)) - 1]
            if answer.kind == "throttled":
                hold_s = max(hold_s, min(answer.after_s or 0.0, LONGEST_HOLD_S))
            connection.execute(
                "UPDATE sender SET failing = ?, held_until_us = ?, disabled = ?",
                (failing, now + int(hold_s * SECOND), answer.said if answer.kind == "gone" else ""),
            )

    # --- by hand ---

    def waiting(self) -> list[Message]:
        return self._listed("waiting")

    def failures(self) -> list[Message]:
        """What was given up after the last try."""
        return self._listed("failed")

    def _listed(self, state: str) -> list[Message]:
        with self._transaction() as connection:
            rows: list[Any] = connection.execute(
                "SELECT message_id, body, tries, due_us, said FROM messages WHERE state = ? ORDER BY id", (state,)
            ).fetchall()
        return [Message(*row) for row in rows]

    def replay(self, message_id: str) -> None:
        """Send a message that has failed again, under its id, with all tries before it."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE messages SET state = 'waiting', tries = 0, due_us = ?"
                " WHERE message_id = ? AND state = 'failed'",
                (self._clock(), message_id),
            )
            if not connection.changes():
                raise UsageError(
                    what=f"no message {message_id!r} has failed", do="Look at failures() for those that have"
                )
        self._wake.set()

    def enable(self) -> None:
        """Send again after the receiver had said that it is gone."""
        with self._transaction() as connection:
            connection.execute("UPDATE sender SET disabled = '', failing = 0, held_until_us = 0")
        self._wake.set()

    def trouble(self) -> str:
        """Why messages wait, in words; empty if none does for long."""
        with self._transaction() as connection:
            disabled, _, failing = _row(connection, "SELECT disabled, held_until_us, failing FROM sender")
            said = connection.execute(
                "SELECT said FROM messages WHERE said != '' ORDER BY due_us DESC LIMIT 1"
            ).fetchone()
            failed = _one(connection, "SELECT count(*) FROM messages WHERE state = 'failed'")
        told = [f"disabled: {disabled}"] if disabled else [str(said[0])] if failing and said else []
        return "; ".join([*told, f"{failed} messages failed"] if failed else told)

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._close_here()

    def _close_here(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection


def _one(connection: apsw.Connection, query: str) -> Any:
    return _row(connection, query)[0]


def _row(connection: apsw.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()


_TABLES = """
CREATE TABLE IF NOT EXISTS mark(
  one INTEGER PRIMARY KEY CHECK (one = 1), version TEXT NOT NULL, mark TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS messages(
  id INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE, body BLOB NOT NULL, tries INTEGER NOT NULL,
  due_us INTEGER NOT NULL, state TEXT NOT NULL, said TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS messages_by_state ON messages(state, due_us);
CREATE TABLE IF NOT EXISTS sender(
  one INTEGER PRIMARY KEY CHECK (one = 1), disabled TEXT NOT NULL, held_until_us INTEGER NOT NULL,
  failing INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO sender VALUES (1, '', 0, 0);
"""
