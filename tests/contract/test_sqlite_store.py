from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Position
from headwater.errors import BadKey, Corrupt
from headwater.log.position import AppendNumber
from headwater.serve.store import NOTHING, Mark
from headwater.serve.stores.sqlite import SqliteStore
from headwater.testing.stores_contract import Place, StoreContract

SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("big", pa.uint64()),
        ("x", pa.float64()),
        ("raw", pa.binary()),
    ]
)


def mark(number: int) -> Mark:
    return Mark(AppendNumber(number), Position.of({"v": {0: number}}), Position.of({"clicks": {0: 10 * number}}))


def row(page: str | None, n: int, weight: int = 1) -> dict[str, Any]:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    rest = {"at": at, "day": at.date(), "ok": n > 1, "big": 2**64 - n, "x": n / 3, "raw": bytes([n])}
    return {"page": page, "n": n, **rest, "_weight": weight}


def changes(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA.append(pa.field("_weight", pa.int64())))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "v.db", SCHEMA, ("page",))
    yield opened
    opened.close()


def rows_of(store: SqliteStore) -> list[dict[str, Any]]:
    return sorted(store.read()[0].to_pylist(), key=repr)


def without_weight(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in each.items() if k != "_weight"} for each in rows), key=repr)


def test_a_new_store_has_no_rows_and_covers_nothing(store: SqliteStore) -> None:
    assert store.mark() == NOTHING
    assert store.read()[0].num_rows == 0


def test_rows_of_every_type_come_back_as_they_went_in(store: SqliteStore) -> None:
    store.apply(changes(row("/a", 1), row("/b", 2), row(None, 3)), mark(1))
    assert rows_of(store) == without_weight(row("/a", 1), row("/b", 2), row(None, 3))
    assert store.read()[0].schema == SCHEMA
    assert store.mark() == mark(1)


def test_an_update_takes_the_old_row_away(store: SqliteStore) -> None:
    store.apply(changes(row("/a", 1), row(None, 5)), mark(1))
    store.apply(changes(row("/a", 1, -1), row("/a", 2), row(None, 5, -1), row(None, 6)), mark(2))
    assert rows_of(store) == without_weight(row("/a", 2), row(None, 6))


def test_what_came_and_went_in_between_leaves_no_trace(store: SqliteStore) -> None:
    store.apply(changes(row("/a", 1), row("/a", 1, -1), row("/a", 2), row("/a", 2, -1), row("/a", 3)), mark(1))
    assert rows_of(store) == without_weight(row("/a", 3))


def test_an_empty_change_still_moves_the_mark(store: SqliteStore) -> None:
    store.apply(changes(), mark(4))
    assert store.mark() == mark(4)


def test_one_row_by_its_key(store: SqliteStore) -> None:
    store.apply(changes(row("/a", 1), row(None, 2)), mark(1))
    assert store.get(["/a"]) == (without_weight(row("/a", 1))[0], mark(1))
    assert store.get([None])[0] == without_weight(row(None, 2))[0]
    assert store.get(["/none"])[0] is None
    with pytest.raises(BadKey, match=r"has the key \(page\)"):
        store.get(["/a", 1])


def test_a_key_given_as_text_is_read_as_its_type(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "v.db", pa.schema([("id", pa.int64()), ("n", pa.int64())]), ("id",))
    rows = pa.table({"id": [7], "n": [1], "_weight": [1]})
    store.apply(rows, mark(1))
    assert store.get(["7"])[0] == {"id": 7, "n": 1}
    with pytest.raises(BadKey):
        store.get(["seven"])


def test_a_failed_change_leaves_rows_and_mark_as_they_were(store: SqliteStore) -> None:
    store.apply(changes(row("/a", 1)), mark(1))
    broken = Mark(AppendNumber(2), Position(), None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="."):
        store.apply(changes(row("/a", 1, -1)).drop_columns(["n"]), broken)
    assert rows_of(store) == without_weight(row("/a", 1))
    assert store.mark() == mark(1)


def test_another_reader_sees_rows_and_mark_of_one_moment(store: SqliteStore, tmp_path: Path) -> None:
    reader = SqliteStore(tmp_path / "v.db", SCHEMA, ("page",))
    before = reader.version()
    store.apply(changes(row("/a", 1)), mark(1))
    assert reader.version() != before
    table, seen = reader.read()
    assert (table.num_rows, seen) == (1, mark(1))


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "v.db").write_bytes(b"this is no database " * 300)
    with pytest.raises(Corrupt, match="the store in .*v.db is damaged"):
        SqliteStore(tmp_path / "v.db", SCHEMA, ("page",))


def test_rows_without_a_key_are_there_as_often_as_they_are(tmp_path: Path) -> None:
    bag = SqliteStore(tmp_path / "bag.db", SCHEMA, ())
    bag.apply(changes(row("/a", 1), row("/a", 1, 2), row(None, 2)), mark(1))
    assert rows_of(bag) == without_weight(row("/a", 1), row("/a", 1), row("/a", 1), row(None, 2))
    bag.apply(changes(row("/a", 1, -2), row(None, 2, -1), row("/b", 3)), mark(2))
    assert rows_of(bag) == without_weight(row("/a", 1), row("/b", 3))
    with pytest.raises(BadKey, match="have no key to ask for them by"):
        bag.get(("/a",))
    bag.close()


NESTED = pa.schema(
    [
        ("k", pa.int64()),
        ("price", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.string())),
        (
            "who",
            pa.struct([("name", pa.string()), ("since", pa.timestamp("us", "UTC")), ("paid", pa.decimal128(9, 3))]),
        ),
        ("counts", pa.map_(pa.date32(), pa.binary())),
    ]
)


def test_decimals_and_nested_values_come_back_as_they_were(tmp_path: Path) -> None:
    since = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    one = {
        "k": 1,
        "price": Decimal("12345678901234567890.12"),
        "tags": ["a", None, "ü"],
        "who": {"name": "x", "since": since, "paid": Decimal("0.125")},
        "counts": [(since.date(), b"\x00\xff")],
    }
    two = {"k": 2, "price": None, "tags": [], "who": None, "counts": None}
    nested = SqliteStore(tmp_path / "nested.db", NESTED, ("k",))
    stored = NESTED.append(pa.field("_weight", pa.int64()))
    nested.apply(pa.Table.from_pylist([{**each, "_weight": 1} for each in (one, two)], stored), mark(1))
    assert nested.read()[0].equals(pa.Table.from_pylist([one, two], NESTED))
    nested.apply(pa.Table.from_pylist([{**one, "_weight": -1}], stored), mark(2))
    assert nested.read()[0].to_pylist() == [two]
    nested.close()


class TestSqliteStore(StoreContract):
    apart = "each version has a file of its own"

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(lambda served: SqliteStore(tmp_path / f"{served.version}.db", served.schema, served.key))
