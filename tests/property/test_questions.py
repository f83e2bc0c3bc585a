"""What a store answers, and what Arrow answers about the past, is DuckDB's answer to the same condition and order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.position import AppendNumber, Position
from headwater.serve.question import answered, question
from headwater.serve.sqlite import SqliteStore
from headwater.serve.store import Mark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("page", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("big", pa.uint64()),
        ("x", pa.float64()),
        ("seen", pa.timestamp("us", "UTC")),
        ("ok", pa.bool_()),
    ]
)
DUCK = duckdb.connect()
DUCK.execute("SET TimeZone = 'UTC'; SET threads = 1")
START = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 3),
    "page": st.sampled_from(["", "a", "A", "ä", "it's", "b"]),
    "price": st.integers(-1100, 1100).map(lambda cents: Decimal(cents) / 100),
    "big": st.sampled_from([0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1]),
    "x": st.sampled_from([-1.5, 0.0, 0.25, 1e300]),
    "seen": st.integers(0, 4).map(lambda hours: START + timedelta(hours=hours)),
    "ok": st.booleans(),
}


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def simple(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(VALUES)))
    one, other = (literal(draw(VALUES[name])) for _ in range(2))
    return draw(
        st.sampled_from(
            [f"{name} {op} {one}" for op in ("=", "<>", "<", "<=", ">", ">=")]
            + [f"{one} < {name}", f"{name} IN ({one}, {other})", f"{name} NOT IN ({one}, {other})"]
            + [f"{name} BETWEEN {one} AND {other}", f"{name} IS NULL", f"{name} IS NOT NULL", "ok", "NOT ok"]
        )
    )


CONDITIONS = st.recursive(
    simple(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda three: f"({three[0]}) {three[1]} ({three[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=12)
ORDERS = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*(st.sampled_from([name, f"{name} ASC", f"{name} DESC"]) for name in names))
)


@given(rows=ROWS, where=CONDITIONS, order=ORDERS, limit=st.none() | st.integers(0, 5))
def test_answers_are_those_of_duckdb(
    rows: list[dict[str, Any]], where: str, order: tuple[str, ...], limit: int
) -> None:
    table = pa.Table.from_pylist([{"id": number, **row} for number, row in enumerate(rows)], SCHEMA)
    sql = ", ".join(f"{each} NULLS LAST" for each in (*order, "id"))
    DUCK.register("rows", table)
    told = DUCK.sql(f"SELECT id FROM rows WHERE {where} ORDER BY {sql} LIMIT {limit if limit is not None else 1000}")
    expected = [row[0] for row in told.fetchall()]
    asked = question(SCHEMA, ["id"], where=where, order_by=[*order, "id"], limit=limit, columns=["id"])
    assert answered(table, asked)["id"].to_pylist() == expected
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "v.db", SCHEMA, ("id",))
        changes = table.append_column("_weight", pa.array([1] * len(rows), pa.int64()))
        store.apply(changes, Mark(AppendNumber(1), Position(), Position()))
        assert store.read(asked=asked)[0]["id"].to_pylist() == expected
        store.close()
