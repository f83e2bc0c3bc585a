"""Group commit: what the threads of a process want written at the same time goes to disk in one transaction.

The thread that finds nobody writing leads: it takes all that waits, does it, commits once, and the others, when their
turn comes, find theirs done. Alone, a writer commits at once; only where the last commit was shared does the leader
give the others a moment to come back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import apsw

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.log.embedded.append import Append, append_to
from headwater.log.embedded.bound import Refused
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.rowgroup import Encode, Handed, append_group, encode_groups
from headwater.log.embedded.transaction import Memory, Transaction
from headwater.log.protocol import Appended

T = TypeVar("T")
MOST = 256
COMPANY_S = 0.0003
"""How long the leader lets those run who are likely to want this commit too: about as long as a sync takes."""


class _Ticket(Generic[T]):
    """One thread's work. `turn` is held until the work is done or the thread is to lead."""

    __slots__ = ("done", "error", "rows", "turn", "value", "work")

    def __init__(self, work: Callable[[Transaction], T] | None, rows: Sequence[Handed] = ()) -> None:
        self.work = work
        self.rows = rows
        self.value: T | None = None
        self.error: BaseException | None = None
        self.done = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Committer:
    def __init__(self, catalog: Catalog, *, clock: Clock, encode: Encode) -> None:
        self._catalog = catalog
        self._clock = clock
        self._encode = encode
        self._queue = threading.Lock()
        self._waiting: deque[_Ticket[Any]] = deque()
        self._leader: _Ticket[Any] | None = None
        self._company = 1
        self._memory = Memory()

    def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do the work inside a transaction; return its answer once that is durable, or raise what it raised.

        Work that raises one of our errors has changed nothing; that of others in the same transaction stands.
        """

        def apart(transaction: Transaction) -> T:
            with transaction.catalog as catalog:  # a savepoint: this work's part alone
                answer = work(catalog)
            return answer

        return self._done(_Ticket(apart))

    def append(self, wanted: Append, *, now: int) -> Appended:
        """The same for an append, which is listed together with others of the group."""
        return self._done(_Ticket(lambda transaction: append_to(transaction, wanted, now=now)))

    def append_rows(self, handed: Sequence[Handed]) -> None:
        """The same for rows of topics, which are made into chunks together with those of other threads.

        Leaves in each its answer or its error, or neither if another process has bounded the topic in the meantime.
        """
        self._done(_Ticket(None, handed))

    def _done(self, ticket: _Ticket[T]) -> T:
        try:
            with self._queue:
                self._waiting.append(ticket)
                leads = self._leader is None
                if leads:
                    self._leader = ticket
            if not leads:
                ticket.turn.acquire()
            if not ticket.done:
                self._lead(ticket)
        except BaseException:  # Ctrl-C, whenever it comes: nobody may wait for this thread
            self._leave(ticket, [])
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.value  # type: ignore[return-value]

    def _lead(self, ticket: _Ticket[Any]) -> None:
        """Commit what waits, this thread's ticket first among it; then call the others, then the next leader."""
        if self._company > 1:
            until = time.monotonic() + COMPANY_S
            while len(self._waiting) < self._company and time.monotonic() < until:
                time.sleep(0)  # lets them run
        with self._queue:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        try:
            self._commit(batch)
        finally:
            self._leave(ticket, batch)

    def _leave(self, ticket: _Ticket[Any], batch: list[_Ticket[Any]]) -> None:
        with self._queue:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            following = None
            if self._leader is ticket:
                # Those just served and those waiting already: so many are likely to want the next commit.
                self._company = len(batch) + len(self._waiting)
                following = self._leader = self._waiting[0] if self._waiting else None
        for served in batch:
            if served is not ticket:
                served.turn.release()
        if following is not None:  # last: those who are done may have more by the time it takes its batch
            following.turn.release()

    def _commit(self, batch: list[_Ticket[Any]]) -> None:
        try:
            groups = encode_groups([each for ticket in batch for each in ticket.rows], self._encode)
            with self._catalog.write() as catalog:
                transaction = Transaction(catalog, self._memory)
                for ticket in batch:
                    if ticket.work is not None:
                        try:
                            ticket.value = ticket.work(transaction)
                        except (HeadwaterError, Refused) as error:
                            ticket.error = error
                for group in groups:
                    append_group(transaction, group, now=self._clock())
                transaction.flush()
        except BaseException as error:  # noqa: BLE001  (each ticket's own thread raises it)
            self._memory.forget()
            for ticket in batch:
                ticket.error = error
        finally:
            for ticket in batch:
                ticket.done = True
