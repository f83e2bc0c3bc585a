"""A bounded load: many rows at once, rollbacks, savepoints, key changes, several tables, now and then an ALTER."""

from __future__ import annotations

import random
import time

import pymysql

from headwater.capture.mysql.connection import settings_of

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance decimal(12,2), note text)",
    "CREATE TABLE branches (id bigint, part varchar(9), total double, at timestamp(6) NULL, PRIMARY KEY (id, part))",
    "INSERT INTO accounts SELECT seq, seq, repeat('x', seq % 40) FROM seq_1_to_2000",
    "INSERT INTO branches SELECT seq, concat('p', seq % 3), seq, now(6) FROM seq_1_to_2000",
)
ROUNDS_S = 120.0
LOST = (2003, 2006, 2013, 1927)


class Load:
    """`step` runs one transaction; a server that is gone is waited for, and the transaction is then another one."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._connection: pymysql.Connection | None = None
        self._key = 10_000
        self.committed = 0

    def step(self) -> None:
        deadline = time.monotonic() + ROUNDS_S
        while True:
            try:
                if self._connection is None:
                    self._connection = pymysql.connect(**settings_of(self._url))
                self._transaction(self._connection)
                return
            except pymysql.OperationalError as error:
                if error.args[0] not in LOST:
                    raise
                assert time.monotonic() < deadline, "the server did not come back"
                self.close()
                time.sleep(0.05)

    def alter(self) -> None:
        """Every row has one more value, which no row of the binlog tells."""
        assert self._connection is not None
        self._key += 1
        with self._connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE accounts ADD COLUMN more_{self._key} int DEFAULT {self._key}")

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def _transaction(self, connection: pymysql.Connection) -> None:
        statements = [self._statement() for _ in range(self._random.randint(1, 12))]
        ending = self._random.random()
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for place, statement in enumerate(statements):
                if ending < 0.2 and place == len(statements) // 2:
                    cursor.execute("SAVEPOINT half")
                cursor.execute(statement)
            if ending < 0.1:
                cursor.execute("ROLLBACK")
                return
            if ending < 0.2:
                cursor.execute("ROLLBACK TO half")
            cursor.execute("COMMIT")
        self.committed += 1

    def _statement(self) -> str:
        key, new, pick = self._random.randint(1, 2000), self._key, self._random.random()
        self._key += 1
        choices = [
            (0.25, f"INSERT INTO accounts (id, balance, note) VALUES ({new}, {pick}, 'new')"),
            (0.45, f"UPDATE accounts SET balance = balance + 1, note = concat(note, 'y') WHERE id % 97 = {key % 97}"),
            (0.55, f"DELETE FROM accounts WHERE id = {key}"),
            (0.60, f"UPDATE accounts SET id = {new} WHERE id = {key}"),
            (0.75, f"INSERT INTO branches VALUES ({new}, 'p{key % 3}', {pick}, now(6))"),
            (0.90, f"UPDATE branches SET total = total + {pick} WHERE id = {key}"),
            (0.97, f"DELETE FROM branches WHERE id = {key}"),
            (1.00, f"UPDATE branches SET part = 'q', id = {new} WHERE id = {key}"),
        ]
        return next(statement for bound, statement in choices if pick < bound)
