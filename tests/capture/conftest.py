"""One PostgreSQL server for all tests of capture; each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater as hw
from headwater.capture.postgres.capture import PostgresCapture
from headwater.capture.spec import CaptureSpec
from headwater.testing.postgres import PostgresServer, binaries
from tests.capture.database import CapturedDatabase

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    if binaries() is None:
        import os

        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer({"fsync": "off", "wal_sender_timeout": "10s"}) as running:
        yield running


class Database(CapturedDatabase):
    def __init__(self, server: PostgresServer, name: str, log: hw.Log, until: Callable[..., None]) -> None:
        super().__init__(name, server.url(name), log, until)
        self.server = server
        self.connection = psycopg.connect(self.url, autocommit=True)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def made(self, spec: CaptureSpec) -> PostgresCapture:
        return PostgresCapture(spec, self.log)

    def close(self) -> None:
        super().close()
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
    made = Database(server, name, log, until)
    yield made
    made.close()
    log.close()
