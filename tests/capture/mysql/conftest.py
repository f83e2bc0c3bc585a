"""One MariaDB server for all tests of capture from it; each test has a database of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

import headwater as hw
from headwater.capture.mysql.capture import MysqlCapture
from headwater.capture.mysql.connection import settings_of
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSettings, CaptureSpec, Tables, topics_of
from headwater.testing.mariadb import MariadbServer, program

_numbers = itertools.count(1)


def need_mariadb() -> None:
    if program("mariadbd") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("mariadbd is not installed")


@pytest.fixture(scope="session")
def server() -> Iterator[MariadbServer]:
    need_mariadb()
    with MariadbServer({"innodb-flush-log-at-trx-commit": "0"}) as running:
        yield running


@dataclass
class Database:
    """A database of the test's own, and captures of it, named like it."""

    server: MariadbServer
    name: str
    url: str
    log: hw.Log
    until: Callable[..., None]

    def __post_init__(self) -> None:
        self.connection = pymysql.connect(**settings_of(self.url))
        self.running: list[Capturing] = []

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.rows(statement)

    def rows(self, query: str) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return tuple(cursor.fetchall())

    def capture(self, tables: Tables, **settings: Any) -> Capturing:
        """A capture that runs until the test is over."""
        spec = CaptureSpec(self.name, self.url, topics_of(tables), CaptureSettings(**settings))
        capture = MysqlCapture(spec, self.log)
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

    def failed(self, capturing: Capturing) -> Exception:
        self.until(lambda: capturing.failure is not None, what="a failure")
        assert capturing.failure is not None
        return capturing.failure

    def close(self) -> None:
        for capturing in self.running:
            capturing.stop()
        self.run(f"DROP DATABASE {self.name}")
        self.connection.close()


@pytest.fixture
def database(server: MariadbServer, tmp_path: Path, until: Callable[..., None]) -> Iterator[Database]:
    name = f"shop_{next(_numbers)}"
    with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    log = hw.open(f"file:{tmp_path / 'log'}")
    made = Database(server, name, server.url(name), log, until)
    yield made
    made.close()
    log.close()
