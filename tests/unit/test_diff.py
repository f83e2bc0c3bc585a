"""What changed, in words: of plans that the planner makes, and of descriptions of any other kind."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from headwater.log import TopicSpec
from headwater.process.diff import differences
from headwater.process.keyed.aggregate import Aggregate
from headwater.process.plan import Plan
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

INPUTS = {
    "clicks": TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string", "at": "timestamp"})),
    "users": TopicSpec("users", schema_of({"user_id": "int64", "country": "string"}), key=("user_id",), kind="table"),
}
ONE = "SELECT page, count(*) AS n FROM clicks GROUP BY page"
TWO = "SELECT c.page, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page"


def plan(sql: str) -> Plan:
    return plan_view("v", sql, INPUTS)


def described(made: Plan) -> Any:
    """As it comes back from the registry."""
    return json.loads(json.dumps(made.described()))


def told(old: str, new: str) -> list[str]:
    """Without the texts of the SQL, which a test of their own covers."""
    return [line for line in differences(described(plan(old)), described(plan(new))) if not line.startswith("SQL")]


def test_the_same_plan_has_no_differences() -> None:
    assert differences(described(plan(ONE)), described(plan(ONE))) == []


def test_a_new_input_and_operator_are_named() -> None:
    assert told(ONE, TWO) == [
        "input 'clicks' also reads user_id",
        "topic 'users' is a new input",
        "operator 1 was Aggregate(clicks.page), is Join(c.user_id)",
        "operator 2, Aggregate(c.page), is new",
    ]
    assert told(TWO, ONE) == [
        "input 'clicks' no longer reads user_id",
        "topic 'users' is no longer an input",
        "operator 1 was Join(c.user_id), is Aggregate(clicks.page)",
        "operator 2, Aggregate(c.page), is gone",
    ]


def test_a_changed_filter_is_told_with_both_conditions() -> None:
    filtered = ONE.replace(" GROUP", " WHERE page <> '/' GROUP")
    assert told(ONE, filtered) == ["filter of input 'clicks' was none, is clicks.page <> '/'"]
    other = filtered.replace("'/'", "'/home'")
    assert told(filtered, other) == ["filter of input 'clicks' was clicks.page <> '/', is clicks.page <> '/home'"]


def test_another_grouping_changes_columns_and_key() -> None:
    lines = told(ONE, "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id")
    assert "input 'clicks' also reads user_id and no longer reads page" in lines
    assert {"column 'page' is gone", "column 'user_id' (int64) is new", "key was (page), is (user_id)"} <= set(lines)


def test_another_count_is_a_change_of_the_operator_and_a_column() -> None:
    lines = told(ONE, "SELECT page, count(*) AS n, count(DISTINCT user_id) AS m FROM clicks GROUP BY page")
    assert "column 'm' (int64) is new" in lines
    assert any(line.startswith("operator 1, Aggregate: its ") and "distinct" in line for line in lines)


def test_the_text_of_the_sql_is_shown_as_a_diff() -> None:
    lines = differences(
        described(plan("SELECT page,\n  count(*) AS n\nFROM clicks\nGROUP BY page")),
        described(plan("SELECT page,\n  count(user_id) AS n\nFROM clicks\nGROUP BY page")),
    )
    (sql,) = [line for line in lines if line.startswith("SQL changed")]
    assert "\n-  count(*) AS n\n+  count(user_id) AS n" in sql


def test_engines_buckets_and_revisions_have_words() -> None:
    old = described(plan(ONE))
    new = described(replace(plan(ONE), buckets=8))
    new["engines"] = {**old["engines"], "duckdb": "9.9", "hash": 2}
    new["plan"][2]["nodes"][0][2]["operator"][1] = 7
    duckdb = old["engines"]["duckdb"]
    assert differences(old, new) == [
        f"operator 1, Aggregate: this Headwater computes it otherwise (revision 7, was {Aggregate.revision})",
        "number of buckets was 4, is 8",
        f"DuckDB was {duckdb}, is 9.9",
        "hash of keys was version 1, is 2",
    ]


def test_a_changed_type_and_a_changed_order_of_columns() -> None:
    old, new = described(plan(ONE)), described(plan(ONE))
    new["plan"][2]["schema"] = [["n", "int64"], ["page", "string"]]
    assert differences(old, new) == ["its columns were in the order (page, n), are (n, page)"]
    new["plan"][2]["schema"] = [["page", "string"], ["n", "double"]]
    assert differences(old, new) == ["column 'n' was int64, is double"]


PLAN = ["Frames", 1, {"view": "v", "reads": [["Input", None, {"topic": "clicks", "as": "stream"}]]}]
FRAMES = {
    "plan": PLAN,
    "source": "def v(clicks):\n    return clicks.where('page is not null')\n",
    "settings": {"watermark": {"column": "at", "delay_s": 10}, "late": ["a", "b"]},
    "upstream": {"by_page": "aa"},
}


def frames(**parts: Any) -> Any:
    return {**copy.deepcopy(FRAMES), **parts}


def test_the_source_of_a_function_is_shown_as_a_diff() -> None:
    (line,) = differences(FRAMES, frames(source=str(FRAMES["source"]).replace("page", "user_id")))
    assert line.startswith("source of the function changed\n--- was\n+++ is\n")
    assert "-    return clicks.where('page is not null')\n+    return clicks.where('user_id is not null')" in line
    both = {"f": "def f(): pass", "g": "def g(): pass"}
    (line,) = differences({"source": both}, {"source": {**both, "g": "def g(): return 1"}})
    assert line.startswith("source of g changed\n")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"upstream": {"by_page": "bb"}}, ["its input 'by_page' has changed"]),
        ({"upstream": {}}, ["its input 'by_page' is no longer a view"]),
        (
            {"settings": {"watermark": {"column": "at", "delay_s": 60}, "late": ["a", "c"]}},
            ["settings, watermark, delay_s was 10, is 60", "settings, late, 2 was 'b', is 'c'"],
        ),
        (
            {"settings": {"late": ["a", "b"]}},
            ["settings, watermark is gone, was {'column': 'at', 'delay_s': 10}"],
        ),
        ({"plan": ["Plan", None, {}]}, ["it was Frames(), is Plan()"]),
        (
            {"plan": ["Frames", 2, PLAN[2]]},
            ["Frames: this Headwater computes it otherwise (revision 2, was 1)"],
        ),
        ({"engines": {"spark": "4.2"}}, ["engines is new: {'spark': '4.2'}"]),
    ],
)
def test_descriptions_of_any_kind_are_compared_value_by_value(change: dict[str, Any], expected: list[str]) -> None:
    assert differences(FRAMES, frames(**change)) == expected


def test_an_input_of_another_kind_is_told_by_its_fields() -> None:
    new = frames()
    new["plan"][2]["reads"][0][2]["as"] = "table"
    assert differences(FRAMES, new) == ["input 'clicks', as was 'stream', is 'table'"]


def test_a_topic_read_twice_is_two_inputs() -> None:
    new = frames()
    new["plan"][2]["reads"].append(["Input", None, {"topic": "clicks", "as": "table"}])
    assert differences(FRAMES, new) == ["topic 'clicks' is a new input"]


def test_known_names_with_other_shapes_are_compared_like_any_other() -> None:
    old = {"schema": "page string", "reads": {"clicks": 1}, "key": "page", "upstream": 1, "source": None}
    new = {"schema": "page int", "reads": {"clicks": 2}, "key": "user_id", "upstream": 2, "source": "def f(): pass"}
    assert differences(old, new) == [
        "schema was 'page string', is 'page int'",
        "reads, clicks was 1, is 2",
        "key was 'page', is 'user_id'",
        "upstream was 1, is 2",
        "source of the function changed: was None, is 'def f(): pass'",
    ]
