"""The file in which messages to somebody outside wait, and what is done with them by hand.

    about(view, store)                            whose messages these are
    mark(version, mark)                           how far the view's changes have become messages
    messages(id, message_id, body, tries, due_us, state, said)
    state: waiting, failed (given up, until it is sent again by hand); what was sent is removed
    sender(disabled, held_until_us, failing)      why nothing is sent; until when; failures in a row

It may be opened by several processes: the app that fills and sends it, and a command that looks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headwater.clock import Clock, system_clock
from headwater.errors import StoreFailed, UsageError

BUSY_S = 10.0


@dataclass(frozen=True)
class Message:
    message_id: str
    body: bytes
    tries: int
    due_us: int
    said: str


@dataclass(frozen=True)
class About:
    """`trouble`: why messages wait, in words; empty if none does for long."""

    view: str
    store: str
    waiting: int
    failed: int
    trouble: str


class OutboxFile:
    def __init__(self, path: Path, *, name: str = "", clock: Clock = system_clock) -> None:
        self._path = path
        self._name = name or str(path)
        self._clock = clock
        self._local = threading.local()
        with self.transaction() as connection:
            connection.execute(_TABLES)
        path.chmod(0o600)

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = apsw.Connection(str(self._path))
                connection.set_busy_timeout(int(BUSY_S * 1000))
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

    def waiting(self) -> list[Message]:
        return self._listed("waiting")

    def failures(self) -> list[Message]:
        """What was given up after the last try."""
        return self._listed("failed")

    def _listed(self, state: str) -> list[Message]:
        with self.transaction() as connection:
            rows: list[Any] = connection.execute(
                "SELECT message_id, body, tries, due_us, said FROM messages WHERE state = ? ORDER BY id", (state,)
            ).fetchall()
        return [Message(*row) for row in rows]

    def replay(self, message_id: str) -> None:
        """Send a message that has failed again, under its id, with all tries before it."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE messages SET state = 'waiting', tries = 0, due_us = ?"
                " WHERE message_id = ? AND state = 'failed'",
                (self._clock(), message_id),
            )
            if not connection.changes():
                do = "`headwater outbox failed NAME` lists those that have"
                raise UsageError(what=f"no message {message_id!r} has failed", do=do)

    def enable(self) -> None:
        """Send again after the receiver had said that it is gone."""
        with self.transaction() as connection:
            connection.execute("UPDATE sender SET disabled = '', failing = 0, held_until_us = 0")

    def about(self) -> About:
        with self.transaction() as connection:
            view, store = row_of(connection, "SELECT view, store FROM about") or ("", "")
            disabled, failing = row_of(connection, "SELECT disabled, failing FROM sender")
            said = row_of(connection, "SELECT said FROM messages WHERE said != '' ORDER BY due_us DESC LIMIT 1")
            states: list[Any] = connection.execute("SELECT state, count(*) FROM messages GROUP BY state").fetchall()
        waiting, failed = (dict(states).get(state, 0) for state in ("waiting", "failed"))
        told = [f"disabled: {disabled}"] if disabled else [str(said[0])] if failing and said else []
        return About(view, store, waiting, failed, "; ".join([*told, f"{failed} messages failed"] if failed else told))

    def trouble(self) -> str:
        return self.about().trouble

    def close(self) -> None:
        """For this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection


def row_of(connection: apsw.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()


_TABLES = """
CREATE TABLE IF NOT EXISTS about(
  one INTEGER PRIMARY KEY CHECK (one = 1), view TEXT NOT NULL, store TEXT NOT NULL) STRICT;
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
