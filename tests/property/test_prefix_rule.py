"""The rule that proves a view: after every prefix of the input it is DuckDB's answer to the same SQL over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log import TopicSpec
from headwater.process.keyed import arrangement
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of
from headwater.testing import PlanBench

INPUTS = {
    "clicks": TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string", "n": "int32"}), key=("user_id",)),
    "users": TopicSpec("users", schema_of({"user_id": "int64", "country": "string"}), key=("user_id",), kind="table"),
}

QUERIES = [
    "SELECT page, count(*) AS views FROM clicks GROUP BY page",
    "SELECT page, count(n) AS c, count(DISTINCT user_id) AS d, count(DISTINCT n) AS e FROM clicks GROUP BY page",
    "SELECT page, n, count(*) * 2 + 1 AS odd FROM clicks WHERE n > 2 GROUP BY page, n HAVING count(*) > 1",
    "SELECT upper(page) AS p, n % 3 AS r, count(*) AS c FROM clicks GROUP BY upper(page), n % 3",
    "SELECT country, count(*) AS c, count(DISTINCT user_id) AS d FROM users GROUP BY country",
    """SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
       FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page""",
    """SELECT u.country, count(DISTINCT c.page) AS pages FROM clicks c JOIN users u USING (user_id)
       WHERE c.n < 8 AND u.country <> 'fr' AND length(c.page) + length(u.country) > 3 GROUP BY u.country""",
    """SELECT a.page, count(*) AS pairs FROM clicks a JOIN clicks b ON a.user_id = b.user_id AND a.n < b.n
       GROUP BY a.page""",
]

user_ids = st.integers(0, 5)
clicks = st.fixed_dictionaries(
    {"user_id": user_ids, "page": st.sampled_from(["/a", "/b", "/cc", None]), "n": st.integers(0, 9) | st.none()}
)
changes_of_users = st.tuples(user_ids, st.sampled_from(["de", "fr", "us", None, "gone"]))
batches = st.lists(
    st.tuples(st.lists(clicks, max_size=12), st.lists(changes_of_users, max_size=4)), min_size=1, max_size=8
)


class Users:
    """A table's changes with weights, as someone who knows the old rows writes them."""

    def __init__(self) -> None:
        self.rows: dict[int, str | None] = {}

    def change(self, wanted: list[tuple[int, str | None]]) -> list[dict[str, Any]]:
        written = []
        for user_id, country in wanted:
            if user_id in self.rows:
                written.append({"user_id": user_id, "country": self.rows.pop(user_id), "_weight": -1})
            if country != "gone":
                self.rows[user_id] = country
                written.append({"user_id": user_id, "country": country, "_weight": 1})
        return written


def counted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("query", QUERIES)
@given(given_batches=batches)
def test_after_every_prefix_the_view_is_the_answer_over_it(
    query: str, given_batches: list[tuple[list[dict[str, Any]], list[tuple[int, str | None]]]]
) -> None:
    bench = PlanBench(replace(plan_view("v", query, INPUTS), buckets=2))
    users, all_clicks = Users(), []
    for some_clicks, some_changes in given_batches:
        all_clicks += some_clicks
        pushed = {
            "clicks": pa.Table.from_pylist(some_clicks, INPUTS["clicks"].stored),
            "users": pa.Table.from_pylist(users.change(some_changes), INPUTS["users"].stored),
        }
        emitted = bench.push(pushed)
        assert bench.again().equals(emitted), "a batch that runs twice must say the same"
        view = bench.view()
        assert view["_weight"].to_pylist() == [1] * view.num_rows
        found = [tuple(row.values())[:-1] for row in view.to_pylist()]
        assert counted(found) == counted(answer(query, all_clicks, users.rows))


def answer(query: str, some_clicks: list[dict[str, Any]], some_users: dict[int, str | None]) -> list[tuple[Any, ...]]:
    oracle = duckdb.connect()
    oracle.register("clicks", pa.Table.from_pylist(some_clicks, INPUTS["clicks"].schema))
    rows = [{"user_id": user_id, "country": country} for user_id, country in some_users.items()]
    oracle.register("users", pa.Table.from_pylist(rows, INPUTS["users"].schema))
    return oracle.execute(query).fetchall()


def test_the_rule_catches_an_operator_that_forgets_to_retract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement.Arrangement, "gather", lambda self, wanted: self.shape.schema.empty_table())
    bench = PlanBench(plan_view("v", QUERIES[0], INPUTS))
    for _ in range(2):
        bench.push({"clicks": pa.Table.from_pylist([{"user_id": 1, "page": "/a", "n": 1}], INPUTS["clicks"].stored)})
    found = [tuple(row.values())[:-1] for row in bench.view().to_pylist()]
    assert found != answer(QUERIES[0], [{"user_id": 1, "page": "/a", "n": 1}] * 2, {})
