"""PostgreSQL keeps the contract of stores, on a real server; and what is its own: the user's own tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headwater.serve.stores.postgres import PostgresStore
from headwater.serve.stores.postgres_table import Table
from headwater.testing.postgres import PostgresServer, binaries
from headwater.testing.stores_contract import Place, StoreContract

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
