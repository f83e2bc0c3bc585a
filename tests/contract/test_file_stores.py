"""Stores in files keep the contract: SQLite with a full-text index, DuckDB, Parquet, Delta; and what is their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.serve.store import Served, Target
from headwater.serve.stores.delta import DeltaFolder
from headwater.serve.stores.duckdb import DuckDBStore
from headwater.serve.stores.parquet import ParquetFolder
from headwater.serve.stores.search import SearchStore
from headwater.testing.stores_contract import (
    Place,
    StoreContract,
    TargetContract,
)


class TestDuckDBStore(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(lambda served: DuckDBStore(tmp_path / "v.duckdb", "by page", served, name="duckdb:"))


class TestSearchStore(StoreContract):
    apart = "each version has a file of its own"

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(lambda served: SearchStore(tmp_path / f"{served.version}.db", served, columns=(), name="search:"))


def parquet_rows(folder: Path, served: Served) -> list[dict[str, Any]]:
    """As a warehouse reads them: DuckDB over `current`."""
    if not list((folder / "current").glob("*.parquet")):
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        found = connection.sql(f"SELECT * FROM '{folder}/current/*.parquet'").to_arrow_table()
    rows: list[dict[str, Any]] = found.cast(served.schema).to_pylist()
    return rows


class TestParquetFolder(TargetContract):
    lines_apart = 19

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        folder = tmp_path / "v"
        return Place(
            lambda served: ParquetFolder(folder, served, name="parquet:"),
            lambda _, served: parquet_rows(folder, served),
        )


def delta_rows(target: Target, _: Served) -> list[dict[str, Any]]:
    assert isinstance(target, DeltaFolder)
    rows: list[dict[str, Any]] = target.read().to_pylist()
    return rows


class TestDeltaFolder(TargetContract):
    lines_apart = 19

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(lambda served: DeltaFolder(tmp_path / "v", served, name="delta:"), delta_rows)
