"""How much one request may ask for, and how many may stay connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.errors import TooMany

MOST_ROWS = 10_000
"""Rows of one answer."""
MOST_WAIT_S = 300
"""How long a request may wait for a position or for records."""


@dataclass(frozen=True)
class Limits:
    """What may differ from server to server."""

    body_bytes: int = 16 * 1024 * 1024
    body_s: float = 60.0
    """How long the sending of a body may take."""
    live_rows: int = 1000
    """Rows of a view that a page is shown, and of one event of a feed, about."""
    sql_s: float = 10.0
    sql_read_rows: int = 20_000_000
    """Rows that one query may have read into memory."""
    followers: int = 2000
    """Feeds that are open at the same time."""


class Connections:
    """What stays open. For one event loop, but for `end_all`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ends: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def open(self) -> int:
        return len(self._ends)

    def check(self) -> None:
        if self.open >= self._limit:
            raise TooMany(what="followers", limit=self._limit)

    @contextmanager
    def one_more(self) -> Iterator[asyncio.Event]:
        """Counted while it lasts; the event is set when the server wants it to end."""
        end = asyncio.Event()
        self._ends[end] = asyncio.get_running_loop()
        try:
            yield end
        finally:
            del self._ends[end]

    def end_all(self) -> None:
        """From any thread: whoever follows is to go, and may come again."""
        for end, loop in list(self._ends.items()):
            loop.call_soon_threadsafe(end.set)
