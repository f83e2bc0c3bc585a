"""What is to be told to somebody outside: written into a file with the mark in one transaction, sent from there.

So every change becomes a message once, and a message is sent until somebody took it, under the same id each time: the
other side may get it twice, if its answer was lost, and knows it by the id. Messages are sent in their order, but one
that fails waits for its next try while others pass it by.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import apsw
import pyarrow as pa

from headwater.clock import Clock, system_clock
from headwater.errors import StoreFailed, StoreTaken
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.net import Net, net
from headwater.serve.stores.outbox_file import OutboxFile, row_of

SCHEDULE_S = (0.0, 5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""After how long each try follows the one before: that of Standard Webhooks. After the last, a message has failed."""
JITTER = 0.1
MOST_WAITING = 10_000
HOLD_S = (5.0, 10.0, 20.0, 60.0, 300.0)
"""How long nothing is sent after so many failures in a row: a server that is down is not called for each message."""
LONGEST_HOLD_S = 86400.0
LOOK_S = 5.0
"""How often it is looked whether another process wants something sent again."""
SECOND = 1_000_000


@dataclass(frozen=True)
class Answer:
    """`gone`: never again. `throttled`: later, and all others too."""

    kind: Literal["sent", "failed", "throttled", "gone"]
    said: str
    after_s: float | None = None


class Messenger(Protocol):
    """How changes are worded, and brought to whom."""

    def compose(self, served: Served, some: Net, mark: Mark, *, restart: bool) -> Iterator[bytes]:
        """The messages of one apply. `restart`: the receiver is to forget what it knew."""

    def send(self, message_id: str, body: bytes, now_us: int) -> Answer: ...


class Outbox(OutboxFile):
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
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, name=name, clock=clock)
        self._served = served
        self._messenger = messenger
        self._jitter = jitter
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES (1, ?, ?)", (served.view, name))
            found = row_of(connection, "SELECT version FROM mark")
            if found is None or found[0] != served.version:
                self._empty(connection)

    def _mark(self, connection: apsw.Connection) -> Mark:
        row = row_of(connection, "SELECT version, mark FROM mark")
        if row is None or row[0] != self._served.version:
            raise StoreTaken(store=self._name, by=row[0] if row else "")
        return Mark.parse(row[1])

    def _empty(self, connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM messages")
        connection.execute("INSERT OR REPLACE INTO mark VALUES (1, ?, ?)", (self._served.version, str(NOTHING)))

    def mark(self) -> Mark:
        with self.transaction() as connection:
            return self._mark(connection)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        some = net(changes, self._served.schema)
        with self.transaction() as connection:
            found = self._mark(connection)
            expect(found, after, store=self._name)
            self._refuse_if_stuck(connection)
            if some.here.num_rows or some.gone.num_rows:
                restart = found == NOTHING
                bodies = self._messenger.compose(self._served, some, mark, restart=restart)
                connection.executemany(
                    "INSERT INTO messages(message_id, body, tries, due_us, state, said)"
                    " VALUES (?, ?, 0, ?, 'waiting', '')",
                    ((f"msg_{secrets.token_hex(16)}", body, self._clock()) for body in bodies),
                )
            connection.execute("UPDATE mark SET mark = ?", (str(mark),))
        self._wake.set()

    def _refuse_if_stuck(self, connection: apsw.Connection) -> None:
        (disabled,) = row_of(connection, "SELECT disabled FROM sender")
        if disabled:
            raise StoreFailed(
                store=self._name,
                why=f"it is disabled: {disabled}",
                do="`headwater outbox enable NAME` once the receiver is back",
            )
        (waiting,) = row_of(connection, "SELECT count(*) FROM messages WHERE state = 'waiting'")
        if waiting >= MOST_WAITING:
            raise StoreFailed(store=self._name, why=f"{waiting} messages wait to be sent")

    def clear(self) -> None:
        with self.transaction() as connection:
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
            wait_s = LOOK_S if due is None else min(LOOK_S, max(0.0, (due - self._clock()) / SECOND))
            if not self._stop.is_set():
                self._wake.wait(wait_s)
        super().close()

    def deliver(self) -> int | None:
        """Send what is due, until nothing is; when the next one will be, in µs, or None."""
        while not self._stop.is_set():
            now = self._clock()
            with self.transaction() as connection:
                disabled, held = row_of(connection, "SELECT disabled, held_until_us FROM sender")
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
        with self.transaction() as connection:
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
            failing = row_of(connection, "SELECT failing FROM sender")[0] + 1
            hold_s = HOLD_S[min(failing, len(HOLD_S)) - 1]
            if answer.kind == "throttled":
                hold_s = max(hold_s, min(answer.after_s or 0.0, LONGEST_HOLD_S))
            connection.execute(
                "UPDATE sender SET failing = ?, held_until_us = ?, disabled = ?",
                (failing, now + int(hold_s * SECOND), answer.said if answer.kind == "gone" else ""),
            )

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        super().close()
