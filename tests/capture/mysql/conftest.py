"""One MariaDB server for all tests of capture from it; each test has a database of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

import headwater as hw
from headwater.capture.mysql.capture import MysqlCapture
from headwater.capture.mysql.connection import settings_of
from headwater.capture.spec import CaptureSpec
from headwater.testing.mariadb import MariadbServer, program
from tests.capture.database import CapturedDatabase

_numbers = itertools.count(1)


def need_mariadb() -> None:
    if program("mariadbd") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("mariadbd is not installed")


@pytest.fixture(scope="session")
def server() -> Iterator[MariadbServer]:
    need_mariadb()
    with MariadbServer({"innodb-flush-log-at-trx-commit": "0"}) as running:
        yield running


class Database(CapturedDatabase):
    def __init__(self, server: MariadbServer, name: str, log: hw.Log, until: Callable[..., None]) -> None:
        super().__init__(name, server.url(name), log, until)
        self.server = server
        self.connection = pymysql.connect(**settings_of(self.url))

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.rows(statement)

    def rows(self, query: str) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return tuple(cursor.fetchall())

    def made(self, spec: CaptureSpec) -> MysqlCapture:
        return MysqlCapture(spec, self.log)

    def close(self) -> None:
        super().close()
        self.run(f"DROP DATABASE {self.name}")
        self.connection.close()


@pytest.fixture
def database(server: MariadbServer, tmp_path: Path, until: Callable[..., None]) -> Iterator[Database]:
    name = f"shop_{next(_numbers)}"
    with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    log = hw.open(f"file:{tmp_path / 'log'}")
    made = Database(server, name, log, until)
    yield made
    made.close()
    log.close()
