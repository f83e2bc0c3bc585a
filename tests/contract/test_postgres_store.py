"""PostgreSQL keeps the contract of stores, on a real server; and what is its own: the user's own tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.errors import BadStore, StoreFailed, StoreMoved
from headwater.serve.stores.postgres import PostgresStore
from headwater.serve.stores.postgres_table import Table
from headwater.testing.postgres import PostgresServer, binaries
from headwater.testing.stores_contract import SERVED, Place, StoreContract, changes, mark, row

pytestmark = pytest.mark.postgres
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if binaries() is None:
        import os

        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer({"fsync": "off"}) as running:
        yield running


@pytest.fixture
def table(server: PostgresServer) -> Table:
    return Table("public", f"Pages of {next(_numbers)}")


@pytest.fixture
def place(server: PostgresServer, table: Table) -> Place:
    return Place(lambda served: PostgresStore(server.url(), table, served, name="postgresql:"))


class TestPostgresStore(StoreContract):
    pass


# --- the user's own table ---


@pytest.fixture
def database(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(b"DROP TABLE IF EXISTS mine, headwater_marks CASCADE")
        yield connection


def opened(server: PostgresServer, **served: Any) -> PostgresStore:
    return PostgresStore(server.url(), Table("public", "mine"), replace(SERVED, **served), name="postgresql://h/db")


MINE = b"""CREATE TABLE mine (
    page varchar(40) PRIMARY KEY, n numeric, noted_at timestamptz DEFAULT now(), note text
)"""


def test_a_table_of_the_users_own_is_filled_and_keeps_its_other_columns(
    server: PostgresServer, database: psycopg.Connection[Any]
) -> None:
    database.execute(MINE)
    store = opened(server)
    store.apply(changes(row("/a", 1), row("/b", 2)), mark(1))
    database.execute(b"UPDATE mine SET note = 'seen' WHERE page = '/a'")
    store.apply(changes(row("/a", 1, -1), row("/a", 3), row("/b", 2, -1)), mark(2))
    assert database.execute(b"SELECT page, n, note, noted_at IS NOT NULL FROM mine").fetchall() == [
        ("/a", 3, "seen", True)
    ]
    assert store.get(["/a"]) == ({"page": "/a", "n": 3}, mark(2))
    store.close()
    newer = opened(server, version="by_page@2")
    assert database.execute(b"SELECT count(*) FROM mine").fetchone() == (0,), "a new version begins without rows"
    assert newer.read()[0].num_rows == 0
    newer.close()


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (b"CREATE TABLE mine (page text PRIMARY KEY)", "has no column 'n'.* ADD COLUMN \"n\" bigint"),
        (b"CREATE TABLE mine (page text PRIMARY KEY, n date)", "has 'n' as date. The view's rows need bigint there"),
        (
            b"CREATE TABLE mine (page text, n bigint)",
            r"no unique index on .* \(page\).*CREATE UNIQUE INDEX",
        ),
        (b"CREATE TABLE mine (page text, n bigint, PRIMARY KEY (page, n))", "no unique index on the view's key"),
        (b"CREATE TABLE mine (page text PRIMARY KEY, n bigint, who text NOT NULL)", "wants a value for 'who'"),
        (
            b"CREATE TABLE mine AS SELECT 'x' AS page, 1::bigint AS n; CREATE UNIQUE INDEX ON mine (page)",
            "has rows already",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_what_to_run(
    server: PostgresServer, database: psycopg.Connection[Any], statement: bytes, why: str
) -> None:
    for each in statement.split(b"; "):
        database.execute(each)
    with pytest.raises(BadStore, match=why):
        opened(server)


def test_rows_without_a_key_do_not_go_into_a_users_table(
    server: PostgresServer, database: psycopg.Connection[Any]
) -> None:
    database.execute(MINE)
    with pytest.raises(BadStore, match="have no key"):
        opened(server, key=())


def test_a_value_that_the_database_does_not_take_leaves_rows_and_mark(
    server: PostgresServer, database: psycopg.Connection[Any]
) -> None:
    database.execute(MINE)
    store = opened(server)
    store.apply(changes(row("/a", 1)), mark(1))
    with pytest.raises(StoreFailed, match="value too long"):
        store.apply(changes(row("/b", 1), row("/" * 50, 1)), mark(2))
    assert (store.read()[0].to_pylist(), store.mark()) == ([{"page": "/a", "n": 1}], mark(1))
    store.close()


def test_two_apps_on_one_table_apply_every_append_once(server: PostgresServer, table: Table) -> None:
    one, two = (PostgresStore(server.url(), table, SERVED, name="postgresql:") for _ in range(2))
    begun = one.mark()
    one.apply(changes(row("/a", 1)), mark(1), after=begun)
    with pytest.raises(StoreMoved):
        two.apply(changes(row("/a", 1)), mark(1), after=begun)
    two.apply(changes(row("/a", 1, -1), row("/a", 2)), mark(2), after=two.mark())
    assert one.read()[0].to_pylist() == [{"page": "/a", "n": 2}]
    one.close()
    two.close()


def test_a_password_is_never_told(server: PostgresServer) -> None:
    url = server.url_with_password("postgres", "hunter2")
    with pytest.raises(StoreFailed) as failed:
        PostgresStore(url, Table("public", "t"), SERVED, name="postgresql://127.0.0.1/postgres")
    assert "hunter2" not in str(failed.value)


def test_a_server_that_went_away_is_told_and_used_again(server: PostgresServer, table: Table) -> None:
    store = PostgresStore(server.url(), table, SERVED, name="postgresql:")
    store.apply(changes(row("/a", 1)), mark(1))
    server.kill()
    with pytest.raises(StoreFailed, match="Nothing is lost"):
        store.mark()
    server.start()
    store.apply(changes(row("/b", 2)), mark(2), after=mark(1))
    assert store.read(limit=None)[0].num_rows == 2
    store.close()


def test_a_wide_change_of_many_rows_goes_in_at_once(server: PostgresServer, table: Table) -> None:
    store = PostgresStore(server.url(), table, SERVED, name="postgresql:")
    many = pa.table({"page": [f"/{n}" for n in range(20_000)], "n": range(20_000), "_weight": [1] * 20_000})
    store.apply(many, mark(1))
    gone = pa.table({"page": [f"/{n}" for n in range(15_000)], "n": range(15_000), "_weight": [-1] * 15_000})
    store.apply(gone, mark(2))
    assert sorted(row["n"] for row in store.read()[0].to_pylist()) == list(range(15_000, 20_000))
    store.close()


def test_a_new_version_with_the_same_columns_keeps_the_table_and_what_refers_to_it(
    server: PostgresServer, database: psycopg.Connection[Any]
) -> None:
    opened(server).close()
    database.execute(b"CREATE VIEW mine_too AS SELECT * FROM mine")
    newer = opened(server, version="by_page@2")
    newer.apply(changes(row("/a", 1)), mark(1))
    assert database.execute(b"SELECT page FROM mine_too").fetchall() == [("/a",)]
    newer.close()


def test_a_name_that_is_too_long_for_the_database_is_refused(server: PostgresServer) -> None:
    with pytest.raises(BadStore, match="longer than the 63 bytes"):
        PostgresStore(server.url(), Table("public", "x" * 64), SERVED, name="postgresql:")
