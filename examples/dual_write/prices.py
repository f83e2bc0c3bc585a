"""A shop that keeps prices in a database and, to answer quickly, in a cache. Two clients change the same prices at
once.

A price has a version that the database counts up, so whoever reads both can see which of them is older.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

ITEMS = ("apple", "pear", "plum")
MOST_PAUSE_S = 0.02
"""Between two writes of a client: a network, a busy machine."""

Row = tuple[int, int]
"""A price and its version."""
Write = Callable[[str, int], object]


class Database:
    """SQLite; each thread has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE prices (item TEXT PRIMARY KEY, price INTEGER, version INTEGER)")
            connection.executemany("INSERT INTO prices VALUES (?, 0, 0)", [(item,) for item in ITEMS])
        connection.close()

    def set(self, item: str, price: int) -> Row:
        query = "UPDATE prices SET price = ?, version = version + 1 WHERE item = ? RETURNING price, version"
        connection = self._open()
        with connection:
            row: Row = connection.execute(query, (price, item)).fetchone()
        connection.close()
        return row

    def all(self) -> dict[str, Row]:
        connection = self._open()
        rows = connection.execute("SELECT item, price, version FROM prices").fetchall()
        connection.close()
        return {item: (price, version) for item, price, version in rows}

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30)
        connection.execute("PRAGMA synchronous = OFF")  # it is the order that matters here, not a power cut
        return connection


class Cache:
    """A dict, as any cache is; it remembers whether a price ever went back to an older version."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = dict.fromkeys(ITEMS, (0, 0))
        self._lock = threading.Lock()
        self.went_back = 0

    def set(self, item: str, row: Row) -> None:
        with self._lock:
            self.went_back += row[1] < self._rows[item][1]
            self._rows[item] = row

    def all(self) -> dict[str, Row]:
        with self._lock:
            return dict(self._rows)


def race(write: Write, *, seed: int) -> None:
    """Two clients change the price of every item, each at the same time; returns when both are done."""
    both_are_here = threading.Barrier(2)

    def client(number: int) -> None:
        chosen = random.Random(f"{seed} {number}")
        for item in ITEMS:
            both_are_here.wait()
            write(item, chosen.randint(1, 999))

    clients = [threading.Thread(target=client, args=(number,)) for number in (1, 2)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()


def pause(chosen: random.Random) -> None:
    time.sleep(chosen.random() * MOST_PAUSE_S)
