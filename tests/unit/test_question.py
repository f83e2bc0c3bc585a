"""What can be asked of a view, and what is refused with the column's name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadCondition
from headwater.log.position import AppendNumber, Position
from headwater.serve.question import answered, question
from headwater.serve.sqlite import SqliteStore
from headwater.serve.sqlitequery import select
from headwater.serve.store import Mark

SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ('odd "name" DESC', pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"page": page, "n": n, "at": datetime(2026, 1, n or 1, tzinfo=UTC), 'odd "name" DESC': n, "tags": [page or "-"]}
        for page, n in [("/a", 1), ("/b", 5), ("/c", 7), ("/d", None), (None, 9)]
    ],
    SCHEMA,
)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    made = SqliteStore(tmp_path / "v.db", SCHEMA, ("page",))
    changes = ROWS.append_column("_weight", pa.array([1] * ROWS.num_rows, pa.int64()))
    made.apply(changes, Mark(AppendNumber(1), Position(), Position()))
    return made


def asked(store: SqliteStore, **given: Any) -> list[Any]:
    question_ = question(SCHEMA, ["page"], **given)
    found = store.read(asked=question_)[0]
    assert sorted(found.to_pylist(), key=repr) == sorted(answered(ROWS, question_).to_pylist(), key=repr)
    return found.column("page").to_pylist()


@pytest.mark.parametrize(
    ("where", "pages"),
    [
        ({"page": "/a"}, ["/a"]),
        ({"n": {">=": 5, "<": 9}}, ["/b", "/c"]),
        ({"n": {">=": "5"}, "page": ["/b", "/x"]}, ["/b"]),
        ({"page": None}, [None]),
        ({"page": {"!=": None}, "n": None}, ["/d"]),
        ({"page": ["/a", None]}, ["/a", None]),
        ({"page": []}, []),
        ({"at": datetime(2026, 1, 5, tzinfo=UTC)}, ["/b"]),
        ({"at": {">": "2026-01-05T00:00:00Z"}}, ["/c", None]),
        ("n > 5 OR page = '/a'", ["/a", "/c", None]),
        ('PAGE = \'/a\' AND "odd ""name"" DESC" < 2', ["/a"]),
        ("at BETWEEN TIMESTAMP '2026-01-05' AND '2026-01-07'", ["/b", "/c"]),
        ({"tags": {"<>": None}}, ["/a", "/b", "/c", "/d", None]),
        (None, ["/a", "/b", "/c", "/d", None]),
    ],
)
def test_rows_by_condition(store: SqliteStore, where: Any, pages: list[Any]) -> None:
    assert asked(store, where=where, order_by="page") == pages


def test_order_limit_and_columns(store: SqliteStore) -> None:
    assert asked(store, order_by="n DESC", limit=2) == [None, "/c"]
    assert asked(store, order_by=["n", "page DESC"]) == ["/a", "/b", "/c", None, "/d"], "nulls come last"
    assert asked(store, order_by='odd "name" DESC', limit=1) == ["/a"], "a column of that very name"
    assert asked(store, limit=0) == []
    told = store.read(asked=question(SCHEMA, ["page"], where={"page": "/a"}, columns=["n", "page"]))[0]
    assert told.to_pylist() == [{"n": 1, "page": "/a"}]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"where": {"nope": 1}}, "there is no column 'nope'. Columns here: page, n, at"),
        ({"where": {"n": "many"}}, "column 'n': 'many' is not int64"),
        ({"where": {"n": 1.5}}, "column 'n': 1.5 is not int64"),
        ({"where": {"n": True}}, "column 'n': True is not int64"),
        ({"where": {"n": {"~": 1}}}, r"column 'n' is compared by \['~'\]"),
        ({"where": {"n": {"<": None}}}, "column 'n' is compared with null by <"),
        ({"where": {"tags": ["a"]}}, "column 'tags' is list"),
        ({"where": 7}, "where is a int"),
        ({"where": "n ="}, "'n =' is not a condition"),
        ({"where": "n = 1; DROP TABLE rows"}, "is not a condition"),
        ({"where": "nope = 1"}, "there is no column 'nope'"),
        ({"where": "n = (SELECT 1)"}, r"'\(SELECT 1\)' cannot be part of a condition here"),
        ({"where": "n IN (SELECT 1)"}, "cannot be part of a condition"),
        ({"where": "sqrt(n) = 1"}, "cannot be part of a condition"),
        ({"where": "n = page"}, "'page' cannot be part of a condition"),
        ({"where": "page LIKE 'a%'"}, "cannot be part of a condition"),
        ({"where": "rows.n = 1"}, "'rows.n' cannot be part of a condition"),
        ({"where": "n = NULL"}, "n = NULL holds for no row. Write IS NULL"),
        ({"where": "n"}, "'n' cannot be part of a condition"),
        ({"where": "NOT " * 3000 + "n = 1"}, "characters|is not a condition"),
        ({"order_by": "nope"}, "there is no column 'nope'"),
        ({"order_by": "n; DROP TABLE rows"}, "there is no column 'n; DROP TABLE rows'"),
        ({"order_by": "tags"}, "column 'tags' is nested"),
        ({"columns": ["n", "n"]}, r"columns are \['n', 'n'\]"),
        ({"columns": []}, r"columns are \[\]"),
        ({"columns": ["*"]}, r"there is no column '\*'"),
        ({"limit": -1}, "limit is -1"),
        ({"limit": "5"}, "limit is '5'"),
    ],
)
def test_what_cannot_be_answered_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadCondition, match=told):
        question(SCHEMA, ["page"], **given)


def test_a_key_is_found_by_its_index_and_values_stay_beside_the_query(store: SqliteStore) -> None:
    nasty = "'; DROP TABLE rows; --"
    query, given = select(question(SCHEMA, ["page"], where={"page": nasty}), SCHEMA, store._plain)
    assert nasty not in query
    assert given == [nasty, -1]
    plan = store._connection.execute(f"EXPLAIN QUERY PLAN {query}", given).fetchall()
    assert "USING INDEX rows_by_key" in str(plan)
    assert asked(store, where={"page": nasty}) == []
    assert store.read()[0].num_rows == ROWS.num_rows
