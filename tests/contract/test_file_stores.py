"""Stores in files keep the contract: SQLite with a full-text index, DuckDB, Parquet, Delta; and what is their own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest

from headwater.errors import BadRequest, BadStore, StoreFailed
from headwater.serve.store import Served, Target
from headwater.serve.stores.delta import DeltaFolder
from headwater.serve.stores.duckdb import DuckDBStore
from headwater.serve.stores.parquet import ParquetFolder
from headwater.serve.stores.search import SearchStore
from headwater.testing.stores_contract import (
    SERVED,
    Place,
    StoreContract,
    TargetContract,
    changes,
    mark,
    plainly,
    row,
)

pytestmark = pytest.mark.slow


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


# --- full text ---

ARTICLES = pa.schema([("id", pa.int64()), ("title", pa.string()), ("body", pa.string())])


def article(number: int, title: str, body: str | None, weight: int = 1) -> dict[str, Any]:
    return {"id": number, "title": title, "body": body, "_weight": weight}


@pytest.fixture
def articles(tmp_path: Path) -> SearchStore:
    served = replace(SERVED, schema=ARTICLES, key=("id",))
    store = SearchStore(tmp_path / "a", served, columns=(), name="search:")
    first = [
        article(1, "Rivers", "where water begins"),
        article(2, "Streams", "water, water"),
        article(3, "Dust", None),
    ]
    store.apply(changes(*first, schema=ARTICLES), mark(1))
    return store


def ids(store: SearchStore, query: str, **given: int) -> list[int]:
    found: list[int] = store.search(query, **given)[0]["id"].to_pylist()
    return found


def test_what_is_searched_for_is_found_the_best_first(articles: SearchStore) -> None:
    assert ids(articles, "water") == [2, 1]
    assert ids(articles, "water", limit=1) == [2]
    assert ids(articles, "wat* NOT streams") == [1]
    assert ids(articles, "title: dust") == [3]
    assert articles.search("water")[1] == mark(1)
    articles.close()


def test_the_index_follows_updates_and_deletes(articles: SearchStore) -> None:
    old = [article(1, "Rivers", "where water begins", -1), article(2, "Streams", "water, water", -1)]
    articles.apply(changes(*old, article(1, "Rivers", "where wine begins"), schema=ARTICLES), mark(2))
    assert ids(articles, "water") == []
    assert ids(articles, "wine") == [1]
    articles.clear()
    assert ids(articles, "wine") == []
    articles.close()


def test_a_query_that_is_none_and_columns_that_are_not_text_are_refused(articles: SearchStore, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be searched for"):
        articles.search('"')
    articles.close()
    served = replace(SERVED, schema=ARTICLES, key=("id",))
    with pytest.raises(BadStore, match="'id' is no column of text.*: title, body"):
        SearchStore(tmp_path / "b", served, columns=("id",), name="search:")


# --- files ---


def test_a_folder_with_other_files_in_it_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(BadStore, match="there are other files in the folder"):
        ParquetFolder(tmp_path, SERVED, name="parquet:")


def test_a_reader_in_the_middle_of_a_state_can_finish_it_and_older_ones_go(tmp_path: Path) -> None:
    store = ParquetFolder(tmp_path / "v", SERVED, name="parquet:")
    store.apply(changes(*(row(f"/{n}", n) for n in range(100))), mark(1))
    reading = (tmp_path / "v" / "current").resolve()
    files = sorted(reading.glob("*.parquet"))
    store.apply(changes(row("/1", 1, -1)), mark(2))
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{reading}/*.parquet'").fetchall() == [(100,)]
    after = sorted((tmp_path / "v" / "current").glob("*.parquet"))
    shared = {file.stat().st_ino for file in files} & {file.stat().st_ino for file in after}
    assert len(shared) == len(files) - 1, "files that did not change are the same"
    store.apply(changes(row("/2", 2, -1)), mark(3))
    assert not reading.exists()
    assert len(list((tmp_path / "v").glob("at-*"))) == 2


def test_a_delta_table_is_read_by_others_with_its_history(tmp_path: Path) -> None:
    store = DeltaFolder(tmp_path / "v", SERVED, name="delta:")
    store.apply(changes(*(row(f"/{n}", n) for n in range(20))), mark(1))
    store.apply(changes(row("/1", 1, -1), row("/1", 100)), mark(2))
    table = deltalake.DeltaTable(tmp_path / "v")
    rows = table.to_pyarrow_table().drop_columns(["_part"]).to_pylist()
    assert plainly(*rows) == plainly(*(row(f"/{n}", n if n != 1 else 100) for n in range(20)))
    assert table.transaction_version("headwater/by_page@1") == 2
    table.load_as_version(1)
    assert {"page": "/1", "n": 1} in table.to_pyarrow_table().drop_columns(["_part"]).to_pylist()


def test_a_commit_of_somebody_else_in_between_does_not_hide_the_mark(tmp_path: Path) -> None:
    store = DeltaFolder(tmp_path / "v", SERVED, name="delta:")
    store.apply(changes(*(row(f"/{n}", n) for n in range(20))), mark(1))
    store.apply(changes(*(row(f"/{n}", n) for n in range(20, 40))), mark(2))
    deltalake.DeltaTable(tmp_path / "v").optimize.compact()
    assert store.mark() == mark(2)
    store.apply(changes(row("/1", 1, -1)), mark(3), after=mark(2))
    assert store.read().num_rows == 39


def test_a_duckdb_file_that_another_process_has_open_is_told(tmp_path: Path) -> None:
    path = tmp_path / "v.duckdb"
    held = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreFailed, match="lock"):
            DuckDBStore(path, "v", SERVED, name="duckdb:")
        process.communicate()
    DuckDBStore(path, "v", SERVED, name="duckdb:").close()


def test_a_table_of_somebody_else_in_a_duckdb_file_is_not_taken(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        connection.execute("CREATE TABLE v AS SELECT 1 AS precious").fetchall()
    with pytest.raises(BadStore, match="there is a table 'v' already"):
        DuckDBStore(tmp_path / "v.duckdb", "v", SERVED, name="duckdb:")
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        assert connection.execute("SELECT precious FROM v").fetchall() == [(1,)]
