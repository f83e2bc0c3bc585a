"""What numpy and Arrow compute of few rows in DuckDB's place is what DuckDB says, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.process import duck
from headwater.process.keyed.partial import Partial
from headwater.process.keyed.reducing import reduced
from headwater.process.keyed.summing import summed
from headwater.process.keyed.weighing import net, netted
from headwater.process.sql.partial import partial_of
from headwater.process.sql.shown import shown_by
from headwater.typenames import TIMESTAMP

ROWS = pa.schema(
    [
        ("k", pa.int32()),
        ("name", pa.string()),
        ("seen", TIMESTAMP),
        ("x", pa.int64()),
        ("small", pa.int16()),
        ("_weight", pa.int64()),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = pa.schema(
    [
        ("k", pa.int32()),
        ("narrow", pa.int8()),
        ("h", pa.uint64()),
        ("high", pa.uint64()),
        ("d", pa.decimal128(38, 1)),
        ("seen", TIMESTAMP),
        ("far", pa.int64()),
        ("x", pa.int64()),
        ("gap", pa.int64()),
        ("late", TIMESTAMP),
        ("_weight", pa.int64()),
    ]
)
QUERIES = {
    "how many": "SELECT k, sum(_weight)::BIGINT AS _weight FROM (SELECT k, _weight FROM changes) GROUP BY k",
    "weighed sums": "SELECT k, name,"
    " coalesce(sum((x)::HUGEINT * _weight) FILTER (WHERE true), 0)::DECIMAL(38, 0) AS n0,"
    " coalesce(sum(small * _weight) FILTER (WHERE true), 0)::BIGINT AS n1,"
    " coalesce(sum(_weight) FILTER (WHERE true AND (x) IS NOT NULL), 0)::BIGINT AS n2"
    " FROM (SELECT k, name, x, small, _weight FROM changes) GROUP BY k, name",
    "extremes": "SELECT who, seen, count(*) AS _weight, min(x) FILTER (WHERE true) AS n0, max(small) AS n1,"
    " max(again) AS n2 FROM (SELECT name AS who, seen, seen AS again, x, small FROM changes) GROUP BY who, seen",
    "values": "SELECT k, _value, sum(_weight)::BIGINT AS _weight FROM (SELECT k, x AS _value, _weight FROM changes)"
    " WHERE _value IS NOT NULL AND (true) GROUP BY k, _value",
    "rows that only come": "SELECT name, count(*) AS _weight,"
    " coalesce(sum(x) FILTER (WHERE true), 0)::DECIMAL(38, 0) AS n0, coalesce(sum(w * 1), 0)::BIGINT AS n1"
    " FROM (SELECT name, x, 1::BIGINT AS w FROM changes) GROUP BY name",
}
RECOGNISED = {name for name in QUERIES if name != "rows that only come"}

rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.one_of(st.none(), st.integers(0, 3)),
            "name": st.sampled_from([None, "", "a", "A", "ä"]),
            "seen": st.sampled_from([None, 0, 1, 10**15]),
            "x": st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**62])),
            "small": st.one_of(st.none(), st.integers(-(2**15), 2**15 - 1)),
            "_weight": st.sampled_from([-2, -1, 1, 3]),
        }
    ),
    max_size=12,
).map(lambda found: pa.Table.from_pylist(found, ROWS))


def same(one: pa.Table, other: pa.Table) -> None:
    assert one.schema == other.schema
    assert sorted(one.to_pylist(), key=repr) == sorted(other.to_pylist(), key=repr)


@pytest.mark.parametrize("name", sorted(QUERIES))
@given(changes=rows)
def test_partial_results_are_those_of_the_query(name: str, changes: pa.Table) -> None:
    partial = partial_of(QUERIES[name])
    assert (partial is not None) == (name in RECOGNISED)
    answer = partial.of(changes) if partial is not None else None
    if answer is not None:
        same(answer, duck.run(QUERIES[name], changes=changes))


def test_numbers_without_nulls_that_fit_are_not_left_to_duckdb() -> None:
    changes = pa.Table.from_pylist(
        [{"k": n % 3, "name": "n", "seen": n, "x": n, "small": n, "_weight": 1 - 2 * (n % 2)} for n in range(20)], ROWS
    )
    for name in RECOGNISED:
        partial = partial_of(QUERIES[name])
        assert isinstance(partial, Partial)
        assert partial.of(changes) is not None, name
    many = pa.concat_tables([changes] * (duck.FEW // 20 + 1))
    assert all((partial := partial_of(QUERIES[name])) and partial.of(many) is None for name in RECOGNISED)


@pytest.mark.parametrize(
    "more",
    [
        "SELECT k, sum(_weight)::BIGINT AS _weight FROM (SELECT k, _weight FROM changes) GROUP BY k HAVING k > 0",
        "SELECT k, sum(_weight)::BIGINT AS _weight FROM (SELECT k, _weight FROM changes WHERE k > 1) GROUP BY k",
        "SELECT k, sum(_weight)::BIGINT AS _weight FROM (SELECT k, _weight FROM changes) WHERE k > 1 GROUP BY k",
        "SELECT k + 1 AS k, sum(_weight)::BIGINT AS _weight FROM (SELECT k, _weight FROM changes) GROUP BY k + 1",
        "SELECT k, count(*) FILTER (WHERE x > 1) AS n FROM (SELECT k, x FROM changes) GROUP BY k",
        "SELECT k, count(DISTINCT x) AS n FROM (SELECT k, x FROM changes) GROUP BY k",
        "SELECT k, sum(x) AS n FROM (SELECT k, x * 2 AS x FROM changes) GROUP BY k",
        "SELECT k, sum(x)::DOUBLE AS n FROM (SELECT k, x FROM changes) GROUP BY k",
        "SELECT k, max(x, 2) AS n FROM (SELECT k, x FROM changes) GROUP BY k",
        "SELECT k, max(x) AS n FROM (SELECT k, name, x FROM changes) GROUP BY k, name",
        "SELECT k, max(x) AS n FROM (SELECT k, x FROM changes) GROUP BY ROLLUP (k)",
    ],
)
def test_a_query_that_asks_for_more_is_left_to_duckdb(more: str) -> None:
    assert partial_of(more) is None


@given(changes=rows)
def test_rows_that_cancel_are_those_that_duckdb_finds(changes: pa.Table) -> None:
    same(netted(changes), duck.run(net("FROM rows"), rows=changes))


@given(changes=rows)
def test_sums_never_overflow_in_silence(changes: pa.Table) -> None:
    answer = reduced(changes, ["name"], [("x", "sum")])
    if answer is not None:
        exact: dict[str | None, int] = {}
        for row in changes.to_pylist():
            exact[row["name"]] = exact.get(row["name"], 0) + (row["x"] or 0)
        assert {row["name"]: row["x"] for row in answer.to_pylist()} == exact


whole_rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(-2, 2),
            "narrow": st.sampled_from([-128, -1, 127]),
            "h": st.sampled_from([0, 2**63, 2**64 - 1]),
            "high": st.integers(2**64 - 3, 2**64 - 1),
            "d": st.decimals(-9, 9, places=1),
            "seen": st.sampled_from([-1, 0, 10**15]).map(lambda us: EPOCH + timedelta(microseconds=us)),
            "far": st.sampled_from([-(2**63), 0, 2**63 - 1]),
            "x": st.one_of(st.integers(-5, 5), st.just(2**61)),
            "gap": st.one_of(st.none(), st.integers(-5, 5)),
            "late": st.one_of(st.none(), st.sampled_from([EPOCH, EPOCH + timedelta(days=1)])),
            "_weight": st.sampled_from([-2, -1, 1, 3]),
        }
    ),
    min_size=1,
    max_size=12,
).map(lambda found: pa.Table.from_pylist(found, NUMBERS))


@pytest.mark.parametrize(
    "keys", [["k"], ["d"], ["far"], ["k", "seen"], ["far", "k", "d"], ["narrow", "k"], ["h", "narrow"], ["high", "k"]]
)
@given(changes=whole_rows)
def test_numbers_are_brought_together_as_duckdb_does(keys: list[str], changes: pa.Table) -> None:
    grouped = summed(
        changes.append_column("total", changes["d"]),
        keys,
        [("_weight", "sum"), ("x", "max"), ("gap", "min"), ("late", "max"), ("total", "sum")],
    )
    assert grouped is not None
    named = ", ".join(keys)
    query = (
        f"SELECT {named}, sum(_weight)::BIGINT AS _weight, max(x) AS x, min(gap) AS gap, max(late) AS late,"
        f" sum(d)::DECIMAL(38, 1) AS total FROM changes GROUP BY {named}"
    )
    same(grouped, duck.run(query, changes=changes))


SHOWN = (
    'SELECT k AS "key", CASE WHEN small > 0 THEN CAST(x AS DECIMAL(38, 0)) END AS total,'
    " CAST(small AS DECIMAL(38, 0)) AS s, _weight FROM (SELECT k, x, small, _weight FROM changes)"
)


@given(changes=rows)
def test_sums_of_nothing_are_shown_as_the_query_shows_them(changes: pa.Table) -> None:
    shown = shown_by(SHOWN)
    assert shown is not None
    same(shown.of(changes), duck.run(SHOWN, changes=changes))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("small > 0", "small > 1"),
        ("small > 0", "small >= 0"),
        ("END", "ELSE 0 END"),
        ("DECIMAL(38, 0)", "DECIMAL(38, 2)"),
        ("x AS", "x + 1 AS"),
        ("SELECT k AS", "SELECT DISTINCT k AS"),
        ("FROM changes)", "FROM changes WHERE k > 1)"),
    ],
)
def test_what_shows_anything_else_is_left_to_duckdb(one: str, other: str) -> None:
    assert shown_by(SHOWN.replace(one, other)) is None
