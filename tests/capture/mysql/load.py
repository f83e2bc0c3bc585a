"""The load of PostgreSQL's tests on MariaDB, and now and then an ALTER."""

from __future__ import annotations

import pymysql

from headwater.capture.mysql.connection import settings_of
from tests.capture.load import AnyLoad, ServerGone

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance decimal(12,2), note text)",
    "CREATE TABLE branches (id bigint, part varchar(9), total double, at timestamp(6) NULL, PRIMARY KEY (id, part))",
    "INSERT INTO accounts SELECT seq, seq, repeat('x', seq % 40) FROM seq_1_to_2000",
    "INSERT INTO branches SELECT seq, concat('p', seq % 3), seq, now(6) FROM seq_1_to_2000",
)
LOST = (2003, 2006, 2013, 1927)


class Load(AnyLoad):
    longer_note, now = "concat(note, 'y')", "now(6)"
    _connection: pymysql.Connection | None = None

    def execute(self, statement: str) -> None:
        try:
            if self._connection is None:
                self._connection = pymysql.connect(**settings_of(self._url))
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.OperationalError as error:
            if error.args[0] not in LOST:
                raise
            raise ServerGone from error

    def alter(self) -> None:
        """Every row has one more value, which no row of the binlog tells."""
        self._key += 1
        self.execute(f"ALTER TABLE accounts ADD COLUMN more_{self._key} int DEFAULT {self._key}")

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None
