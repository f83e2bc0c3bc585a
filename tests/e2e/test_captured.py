"""A captured table in an app: a view over it is the answer of the database itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import headwater as hw
from headwater.testing.postgres import PostgresServer, binaries

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.spark]
QUERY = "SELECT country, count(*) AS users, sum(score) AS score FROM users GROUP BY country"


def test_a_view_over_captured_tables_is_what_the_database_answers(
    tmp_path: Path, must_have: Callable[[bool, str], None]
) -> None:
    must_have(binaries() is not None, "the pgserver wheel is missing")
    with PostgresServer({"fsync": "off"}) as server, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE users (id int PRIMARY KEY, country text, score bigint)")
        connection.execute("INSERT INTO users SELECT g, 'c' || g % 7, g FROM generate_series(1, 500) g")
        with hw.App("shop", log=f"file:{tmp_path / 'app'}") as app:
            users = app.capture(server.url(), tables=["users"])["users"]
            assert users.spec.key == ("id",)
            view = app.view("by_country", sql=QUERY)
            app.run(only="captures", until="caught-up")
            connection.execute("UPDATE users SET country = 'c0' WHERE id % 5 = 0")
            connection.execute("DELETE FROM users WHERE id % 11 = 0")
            app.run(until="caught-up")
            rows = sorted((row["country"], row["users"], row["score"]) for row in view.read().to_pylist())
        assert rows == sorted(connection.execute(QUERY).fetchall())
