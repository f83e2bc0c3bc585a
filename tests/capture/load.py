"""A bounded load like pgbench's, with what pgbench leaves out: rollbacks, savepoints, key changes, several tables."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod

import psycopg

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(12,2), note text)",
    "CREATE TABLE branches (id bigint, part text, total float8, at timestamptz, PRIMARY KEY (id, part))",
    "ALTER TABLE branches REPLICA IDENTITY FULL",
    "INSERT INTO accounts SELECT g, g, repeat('x', g % 40) FROM generate_series(1, 2000) g",
    "INSERT INTO branches SELECT g, 'p' || g % 3, g, now() FROM generate_series(1, 2000) g",
)
ROUNDS_S = 120.0


class ServerGone(Exception):
    """The connection is lost; whether the transaction was committed is not known."""


class AnyLoad(ABC):
    """`step` runs one transaction; a server that is gone is waited for, and the transaction is then another one."""

    longer_note, now = "note || 'y'", "now()"

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._key = 10_000
        self.committed = 0

    @abstractmethod
    def execute(self, statement: str) -> None:
        """On the one connection, which is made if there is none; `ServerGone` if it is lost."""

    @abstractmethod
    def close(self) -> None: ...

    def step(self) -> None:
        deadline = time.monotonic() + ROUNDS_S
        while True:
            try:
                self._transaction()
                return
            except ServerGone:
                assert time.monotonic() < deadline, "the server did not come back"
                self.close()
                time.sleep(0.05)

    def _transaction(self) -> None:
        statements = [self._statement() for _ in range(self._random.randint(1, 12))]
        ending = self._random.random()
        self.execute("BEGIN")
        for place, statement in enumerate(statements):
            if ending < 0.2 and place == len(statements) // 2:
                self.execute("SAVEPOINT half")
            self.execute(statement)
        if ending < 0.1:
            self.execute("ROLLBACK")
            return
        if ending < 0.2:
            self.execute("ROLLBACK TO half")
        self.execute("COMMIT")
        self.committed += 1

    def _statement(self) -> str:
        key, new, pick = self._random.randint(1, 2000), self._key, self._random.random()
        self._key += 1
        choices = [
            (0.25, f"INSERT INTO accounts (id, balance, note) VALUES ({new}, {pick}, 'new')"),
            (0.45, f"UPDATE accounts SET balance = balance + 1, note = {self.longer_note} WHERE id % 97 = {key % 97}"),
            (0.55, f"DELETE FROM accounts WHERE id = {key}"),
            (0.60, f"UPDATE accounts SET id = {new} WHERE id = {key}"),
            (0.75, f"INSERT INTO branches VALUES ({new}, 'p{key % 3}', {pick}, {self.now})"),
            (0.90, f"UPDATE branches SET total = total + {pick} WHERE id = {key}"),
            (0.97, f"DELETE FROM branches WHERE id = {key}"),
            (1.00, f"UPDATE branches SET part = 'q', id = {new} WHERE id = {key}"),
        ]
        return next(statement for bound, statement in choices if pick < bound)


class Load(AnyLoad):
    _connection: psycopg.Connection[tuple[object, ...]] | None = None

    def execute(self, statement: str) -> None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._url, autocommit=True)
            self._connection.execute(statement.encode())
        except psycopg.OperationalError as error:
            raise ServerGone from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
