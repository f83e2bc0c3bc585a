"""One PostgreSQL server for all tests of capture; each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater as hw
from headwater.capture.postgres.capture import PostgresCapture
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSettings, CaptureSpec, Tables, topics_of
from headwater.testing.postgres import PostgresServer, binaries

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    if binaries() is None:
        import os

        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer({"fsync": "off", "wal_sender_timeout": "10s"}) as running:
        yield running


@dataclass
class Database:
    """A database of the test's own, and captures of it, named like it."""

    server: PostgresServer
    name: str
    url: str
    log: hw.Log
    until: Callable[..., None]

    def __post_init__(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.running: list[Capturing] = []

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def capture(self, tables: Tables, **settings: Any) -> Capturing:
        """A capture that runs until the test is over."""
        spec = CaptureSpec(self.name, self.url, topics_of(tables), CaptureSettings(**settings))
        capture = PostgresCapture(spec, self.log)
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        capturing.start()
        self.running.append(capturing)
        return capturing

    def caught_up(self, capturing: Capturing) -> None:
        goal = capturing.capture.goal()

        def there() -> bool:
            if capturing.failure is not None:
                raise capturing.failure
            return capturing.capture.reached(goal)

        self.until(there, within_s=60, what=f"capture at {goal}")

    def close(self) -> None:
        for capturing in self.running:
            capturing.stop()
        self.connection.close()
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            active = "SELECT 1 FROM pg_replication_slots WHERE database = %s AND active"
            self.until(lambda: connection.execute(active, (self.name,)).fetchone() is None, what="free slots")
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (self.name,)
            )
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)".encode())


@pytest.fixture
def database(server: PostgresServer, tmp_path: Path, until: Callable[..., None]) -> Iterator[Database]:
    name = f"shop_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    log = hw.open(f"file:{tmp_path / 'log'}")
    made = Database(server, name, server.url(name), log, until)
    yield made
    made.close()
    log.close()
