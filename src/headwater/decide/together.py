"""Commands that the threads of a process send at the same moment, decided together.

The thread that finds nobody at work leads: it takes all that wait, and the others, when their turn comes, find theirs
answered. Alone, a command is decided at once; only where the last group had several does the leader give the others a
moment to come back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 256
COMPANY_S = 0.0003
"""How long the leader lets those run who are likely to come again: about as long as a sync takes."""


class _Ticket(Generic[T]):
    """`turn` is held until the work is done or its thread is to lead."""

    __slots__ = ("done", "turn", "work")

    def __init__(self, work: T) -> None:
        self.work = work
        self.done = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Together(Generic[T]):
    def __init__(self, act: Callable[[list[T]], None]) -> None:
        """`act` does the work of several threads; what becomes of each it leaves in the work itself."""
        self._act = act
        self._queue = threading.Lock()
        self._waiting: deque[_Ticket[T]] = deque()
        self._leader: _Ticket[T] | None = None
        self._company = 1

    def do(self, work: T) -> None:
        ticket = _Ticket(work)
        with self._queue:
            self._waiting.append(ticket)
            leads = self._leader is None
            if leads:
                self._leader = ticket
        try:
            if not leads:
                ticket.turn.acquire()
            if not ticket.done:
                self._lead(ticket)
        except BaseException:  # Ctrl-C while it waited: nobody may wait for this thread
            self._leave(ticket, [])
            raise

    def _lead(self, ticket: _Ticket[T]) -> None:
        if self._company > 1:
            until = time.monotonic() + COMPANY_S
            while len(self._waiting) < self._company and time.monotonic() < until:
                time.sleep(0)  # lets them run
        with self._queue:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        try:
            self._act([each.work for each in group])
        finally:
            for each in group:
                each.done = True
            self._leave(ticket, group)

    def _leave(self, ticket: _Ticket[T], group: list[_Ticket[T]]) -> None:
        with self._queue:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            following = None
            if self._leader is ticket:
                self._company = len(group) + len(self._waiting)
                following = self._leader = self._waiting[0] if self._waiting else None
        for served in group:
            if served is not ticket:
                served.turn.release()
        if following is not None:  # last: those who are done may have more by the time it takes its group
            following.turn.release()
