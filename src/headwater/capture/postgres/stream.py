"""The stream of changes: whole transactions, appended in the order of their commits.

1  Raw messages are collected (`wire`), until a transaction has ended; while an append runs, more come.
2  All transactions that have ended are decoded together and become one append, with the position of the last.
3  A transaction that is larger than a round is staged round by round, in files that nothing lists, and appended when
   it commits. If the connection breaks before, the files are garbage and it comes again.
4  The server is told how far it may forget only after the append is durable (C3).
5  When nothing is captured, an empty append now and then moves the position, and with it the slot: a heartbeat.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import numpy as np

from headwater.capture.appender import Appender
from headwater.capture.position import SourcePosition, lsn_text
from headwater.capture.postgres.changes import BEGIN, COMMIT, TRUNCATE, Changes, Found
from headwater.capture.postgres.connection import connect_low, shown
from headwater.capture.postgres.frames import ALIVE, count_frames, find_messages, int64_at
from headwater.capture.postgres.wire import Wire, error_words
from headwater.errors import SourceLost

ROUND_BYTES = 8 * 1024 * 1024
"""A transaction that has not ended after so many bytes is staged as far as it came."""
WAIT_S = 0.2
GATHER_BYTES, GATHER_S = 4 * 1024 * 1024, 0.1
"""While much is coming, so much of it is waited for, so long: appends of many rows cost less a row."""
MUCH_BYTES = 128 * 1024
STATUS_S = 5.0
EPOCH_2000_US = 946_684_800_000_000
ERROR, DONE = ord("E") | 128, ord("c") | 128


class Stream:
    def __init__(
        self, url: str, slot: str, appender: Appender, changes: Changes, *, heartbeat_s: float, clock: Callable[[], int]
    ) -> None:
        self._url = url
        self._slot = slot
        self._appender = appender
        self._changes = changes
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._open = False
        self._alive_at = 0
        self._told_at = self._beat_at = time.monotonic()
        self.heard = 0
        """Up to here the server has told everything, and it is appended."""
        self.committed_us = 0
        """When the last transaction that is appended was committed, by the server's clock."""

    def run(self, stopped: threading.Event, between: Callable[[], None]) -> None:
        """Until stopped, or the connection breaks. `between` is called between transactions, several times a second."""
        begin = lsn_text(self._appender.position.end)
        options = f"proto_version '1', publication_names '{self._slot}', messages 'true'"
        statement = f"START_REPLICATION SLOT {self._slot} LOGICAL {begin} ({options})"
        wire = Wire(connect_low(self._url, replication=True), statement, source=shown(self._url))
        try:
            self._changes.forget()
            self._open = False
            self._acknowledge(wire)
            rest, much = bytearray(), False
            while not stopped.is_set():
                more = wire.take(GATHER_S, least=GATHER_BYTES) if much else wire.take(WAIT_S)
                much = len(more) >= MUCH_BYTES
                rest = self._round(wire, rest + more if rest else more)
                if not self._open:
                    if not rest:
                        self._beat(wire)
                        self.heard = max(self.heard, self._alive_at)
                    between()
                if time.monotonic() - self._told_at > STATUS_S:
                    self._acknowledge(wire)
        finally:
            wire.close()

    def _round(self, wire: Wire, raw: bytearray) -> bytearray:
        """Take what is complete; returns what is not."""
        data = np.frombuffer(raw, np.uint8)
        count, whole = count_frames(data, 0, len(data))
        found = Found(data, *find_messages(data, 0, count))
        self._look(found)
        commits = np.flatnonzero(found.kinds == COMMIT)
        if len(commits):
            last = int(commits[-1])
            self._transactions(wire, found, last)
            whole, taken = int(found.ends[last]), last + 1
            if not (found.kinds[taken:] == BEGIN).any():
                self._changes.take(found, taken, count)  # relations and messages outside of transactions
                self._outside()
                whole = int(found.ends[-1])
        elif self._open or (found.kinds == BEGIN).any():
            if whole < ROUND_BYTES:
                return raw
            self._changes.take(found, 0, count)
            self._open = True
        else:
            self._changes.take(found, 0, count)
            self._outside()
        return raw[whole:]

    def _transactions(self, wire: Wire, found: Found, last: int) -> None:
        """Step 2: everything up to the commit that is message `last`."""
        first = 0
        for cut in np.flatnonzero(found.kinds[: last + 1] == TRUNCATE).tolist():
            begins = np.flatnonzero(found.kinds[first:cut] == BEGIN)
            if len(begins) and int(begins[-1]) > 0:  # what came before it must be in the log to be taken away
                before = first + int(begins[-1])
                self._append(wire, found, first, before)
                first = before
        self._append(wire, found, first, last + 1)
        self._open = False

    def _append(self, wire: Wire, found: Found, first: int, last: int) -> None:
        self._changes.take(found, first, last)
        commits = first + np.flatnonzero(found.kinds[first:last] == COMMIT)
        if not len(commits):
            return
        at = int(found.starts[int(commits[-1])])
        commit, end, moment = (int64_at(found.data, at + place) for place in (2, 10, 18))
        rows = self._changes.rows
        self._appender.append(self._changes.give(), SourcePosition(commit, end, rows))
        self.committed_us = moment + EPOCH_2000_US
        self._beat_at = time.monotonic()
        self._acknowledge(wire)

    def _outside(self) -> None:
        """What came outside of a transaction: messages that are not transactional."""
        parts, here = self._changes.give(), self._appender.position
        if parts:
            end = max(here.end, self._changes.messages.after)
            self._appender.append(parts, SourcePosition(here.commit, end, here.changes))

    def _look(self, found: Found) -> None:
        """Signs of life, and of death."""
        for place in np.flatnonzero(found.kinds >= 128).tolist():
            kind = int(found.kinds[place])
            if kind == ERROR:
                _, words = error_words(found.body(place))
                raise SourceLost(source=shown(self._url), why=words)
            if kind == DONE:
                raise SourceLost(source=shown(self._url), why="the server ended the stream")
        alive = np.flatnonzero(found.kinds == ALIVE)
        if len(alive):
            at = int(found.starts[int(alive[-1])])
            self._alive_at = max(self._alive_at, int64_at(found.data, at + 1))
            if found.data[at + 17]:
                self._told_at = 0.0

    def _beat(self, wire: Wire) -> None:
        """Step 5. All that the server had to tell up to `alive_at` is appended."""
        now = time.monotonic()
        here = self._appender.position
        if self._alive_at > here.end and now - self._beat_at >= self._heartbeat_s:
            self._appender.append([], SourcePosition(here.commit, self._alive_at, here.changes))
            self._beat_at, self._told_at = now, 0.0

    def _acknowledge(self, wire: Wire) -> None:
        end = self._appender.position.end
        clock = self._clock() - EPOCH_2000_US
        wire.send(b"r" + struct.pack(">QQQQB", end, end, end, clock, 0))
        self._told_at = time.monotonic()
