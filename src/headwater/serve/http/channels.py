"""Many followers of one thing, one reader: what comes is read and written out once, and handed to all.

    1  A channel's reader starts where its first follower stands and ends with its last. It keeps the newest pieces.
    2  A follower that stands somewhere else reads from the log by itself, until it stands where one of these begins.
    3  From there on it takes pieces from this ring. One that is too slow for it does 2 again.

A piece ends where an append ends, and its id is the place right after it: so a follower that comes back with the id of
the last piece it saw gets what follows it, nothing twice and nothing left out. Where history is gone, a piece says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.log.position import AppendNumber
from headwater.serve.http.pulse import Pulse

RING = 256
PING_S = 15.0
PING = ": still here\n\n"
RETRY_MS = 2000
REST_S = 0.02
"""How long a reader rests at least: appends elsewhere in the log wake it too."""


@dataclass(frozen=True)
class Piece:
    id: str
    """The place after it, as its source writes places."""
    text: str
    """The event as it is sent."""


class Source(Protocol):
    """What is followed. Called from threads."""

    def start(self) -> Sequence[Piece]:
        """What a follower without a place gets first: at least one piece, which says where it goes on."""

    def since(self, place: str) -> Sequence[Piece]:
        """The next pieces; none if nothing has come since. If what came since is gone, pieces that say so and go on."""


def event(kind: str, id_: str, data: str) -> Piece:
    return Piece(id_, f"id: {id_}\nevent: {kind}\ndata: {data}\n\n")


class Channel:
    """For one event loop."""

    def __init__(self, source: Source, pulse: Pulse) -> None:
        self._source = source
        self._pulse = pulse
        self._followers = 0
        self._reader: asyncio.Task[None] | None = None
        self._head = ""
        self._ring: list[Piece] = []
        self._first = 0
        """The number of the first piece in the ring."""
        self._numbers: dict[str, int] = {}
        """From a place to the number of the piece that begins there."""
        self._news = asyncio.Event()

    async def follow(self, place: str | None) -> AsyncIterator[str]:
        """Texts to send, for ever: what comes after `place`, or the start of the source, and pings in between."""
        with self._joined():
            yield f"retry: {RETRY_MS}\n\n"
            here = place or ""
            if place is None:
                for piece in await asyncio.to_thread(self._source.start):
                    yield piece.text
                    here = piece.id
            if self._reader is None:
                self._begin(here)
            while True:
                news = self._news
                next_ = self._next(here)
                pieces = [next_] if next_ is not None else await self._missing(here)
                for piece in pieces:
                    yield piece.text
                    here = piece.id
                if not pieces and not await _set_within(news, PING_S):
                    yield PING

    def _next(self, here: str) -> Piece | None:
        place = self._numbers.get(here, -1) - self._first
        return self._ring[place] if 0 <= place < len(self._ring) else None

    async def _missing(self, here: str) -> Sequence[Piece]:
        return [] if here == self._head else await asyncio.to_thread(self._source.since, here)

    @contextmanager
    def _joined(self) -> Iterator[None]:
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    def _begin(self, head: str) -> None:
        self._head = head
        self._ring, self._numbers, self._first = [], {head: 0}, 0
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        seen = AppendNumber(0)
        while True:
            seen = await self._pulse.wait(seen, PING_S)
            with contextlib.suppress(HeadwaterError):  # followers that stand elsewhere meet it themselves
                while pieces := await asyncio.to_thread(self._source.since, self._head):
                    for piece in pieces:
                        self._add(piece)
                    self._news.set()
                    self._news = asyncio.Event()
            await asyncio.sleep(REST_S)

    def _add(self, piece: Piece) -> None:
        self._ring.append(piece)
        self._head = piece.id
        self._numbers[piece.id] = self._first + len(self._ring)
        if len(self._ring) > RING:
            dropped = len(self._ring) - RING
            del self._ring[:dropped]
            self._first += dropped
            self._numbers = {place: number for place, number in self._numbers.items() if number >= self._first}


class Channels:
    """The channels of a server, made when first asked for."""

    def __init__(self) -> None:
        self._by_name: dict[Hashable, Channel] = {}

    def get(self, name: Hashable, make: Callable[[], Channel]) -> Channel:
        if name not in self._by_name:
            self._by_name[name] = make()
        return self._by_name[name]


async def _set_within(news: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(news.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
