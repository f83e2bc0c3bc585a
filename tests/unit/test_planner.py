from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import SqlRefused
from headwater.log import TopicSpec
from headwater.process.keyed.aggregate import Aggregate
from headwater.process.keyed.join import Join
from headwater.process.keyed.lane import KeyedLane
from headwater.process.lane import declared
from headwater.process.plan import Plan
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

INPUTS = {
    "clicks": TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string", "at": "timestamp"}), time="at"),
    "users": TopicSpec("users", schema_of({"user_id": "int32", "country": "string"}), key=("user_id",), kind="table"),
}


def plan(sql: str) -> Plan:
    return plan_view("v", sql, INPUTS)


def operators(made: Plan) -> list[tuple[str, int]]:
    return [(type(node.operator).__name__, node.level) for node in made.nodes]


def test_a_join_and_an_aggregation_are_two_operators_and_one_side_runs_in_the_source() -> None:
    made = plan(
        "SELECT c.page, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.user_id "
        "WHERE u.country = 'de' GROUP BY c.page"
    )
    assert [type(node.operator) for node in made.nodes] == [Join, Aggregate]
    assert [(read.topic, read.columns) for read in made.reads] == [
        ("clicks", ("user_id", "page")),
        ("users", ("user_id", "country", "_weight")),
    ]
    assert "'de'" in (made.reads[1].sends[0].sql or "")
    assert "'de'" not in str(made.nodes)
    assert made.key == ("page",)
    assert made.schema == pa.schema([("page", pa.string()), ("n", pa.int64())])


def test_a_view_without_state_never_leaves_the_source_task() -> None:
    made = plan("SELECT page, user_id + 1 AS u FROM clicks WHERE page <> '/' UNION ALL SELECT country, 2 FROM users")
    assert (made.nodes, made.levels) == ((), 0)
    assert (made.key, made.reads[0].sends[0].key) == ((), ("page", "u")), "a bag is spread by all its columns"
    facts = plan("SELECT page FROM clicks")
    assert facts.reads[0].sends[0].key == (), "what is never taken away may be anywhere"


def test_rows_that_are_where_they_belong_are_not_spread_again() -> None:
    made = plan(
        "SELECT c.user_id, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.user_id"
    )
    assert operators(made) == [("Join", 0), ("Aggregate", 0)]
    assert [send.local for send in made.nodes[0].sends] == [True]


def test_what_is_said_of_a_keys_rows_alone_is_one_operator() -> None:
    made = plan(
        "SELECT user_id, window_start, list(page) AS n FROM SESSION(clicks, at, user_id, INTERVAL '1 minute')"
        " GROUP BY user_id, window_start HAVING count(*) > 1"
    )
    assert operators(made) == [("Recompute", 0)]


@pytest.mark.parametrize(
    ("sql", "operator"),
    [
        ("count(*) AS n FROM {} GROUP BY user_id, window_start", "Sessions"),
        ("window_end, sum(user_id) AS n FROM {} GROUP BY ALL HAVING count(*) > 1", "Sessions"),
        ("count(DISTINCT page) AS n FROM {} GROUP BY user_id, window_start", "Recompute"),
        ("max(window_end) AS n FROM {} GROUP BY user_id, window_start", "Recompute"),
        ("count(*) AS n FROM {} GROUP BY user_id", "Recompute"),
        ("count(*) AS n FROM {} WHERE page > 'a' GROUP BY user_id, window_start", "Recompute"),
    ],
)
def test_sessions_are_kept_where_nothing_else_is_asked_of_them(sql: str, operator: str) -> None:
    written = "SESSION(clicks, at, user_id, INTERVAL '1 minute')"
    made = plan(f"SELECT user_id, {sql.format(written)}")
    assert operators(made) == [(operator, 0)]


def test_of_rows_that_are_only_added_the_first_ones_are_kept() -> None:
    ranked = (
        "SELECT page, at, r FROM (SELECT *, row_number() OVER (PARTITION BY page ORDER BY at DESC) AS r FROM clicks)"
    )
    assert operators(plan(f"{ranked} WHERE r <= 3")) == [("Top", 0)]
    assert operators(plan(ranked)) == [("Recompute", 0)]


def test_counts_are_added_up_before_rows_travel() -> None:
    made = plan("SELECT page, count(*) AS n FROM clicks GROUP BY page")
    (send,) = made.reads[0].sends
    assert "GROUP BY" in (send.sql or "")


def test_expressions_may_be_grouped_and_counted() -> None:
    made = plan(
        "SELECT date_trunc('minute', at) AS minute, count(DISTINCT lower(page)) AS pages FROM clicks GROUP BY 1"
    )
    assert made.key == ("minute",)
    assert made.schema.field("minute").type == pa.timestamp("us", "UTC")


def test_the_fingerprint_is_of_the_plan_not_of_its_layout() -> None:
    one = plan("SELECT page, count(*) AS n FROM clicks GROUP BY page")
    laid_out = plan("select  page,\n\tCOUNT(*) as n\nfrom clicks\ngroup by page")
    other = plan("SELECT page, count(*) AS m FROM clicks GROUP BY page")
    marks = [declared(KeyedLane(each)).fingerprint for each in (one, laid_out, other)]
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT 1 AS a", "a view without FROM"),
        ("nonsense here", "view 'v': not one SELECT statement. Write a view as one SELECT."),
        ("SELECT page FROM clicks GROUP BY (page", "view 'v', line 1, column 38: not SQL"),
        ("DELETE FROM clicks", "not one SELECT statement"),
        ("SELECT 1 AS a FROM clicks GROUP BY 1; SELECT 2", "not one SELECT statement"),
        ("SELECT page, count(*) AS n FROM click GROUP BY page", "line 1, column 33: there is no topic 'click'. Topics here: clicks, users."),
        ("SELECT paeg, count(*) AS n FROM clicks GROUP BY paeg", "Column 'paeg' could not be resolved"),
        ("SELECT page, count(*) AS n FROM clicks", "line 1, column 8: clicks.page is neither grouped nor aggregated. Add it to GROUP BY"),
        ("SELECT page, at, count(*) AS n FROM clicks GROUP BY page", 'clicks."at" is neither grouped nor aggregated'),
        ("SELECT page FROM clicks ASOF JOIN users USING (user_id)", "an ASOF JOIN without one inequality. Write ON"),
        ("SELECT page FROM clicks POSITIONAL JOIN users", "POSITIONAL JOIN"),
        ("SELECT page FROM clicks JOIN users ON at > now()", "line 1, column 44: now() gives another answer every time"),
        ("SELECT random() AS r FROM clicks", "random() gives another answer every time"),
        ("SELECT c.page FROM clicks c JOIN users u ON c.page = u.user_id", "c.page = u.user_id compares string and int32. Cast one of them."),
        ("SELECT page FROM read_csv('/etc/passwd')", "a table function"),
        ("SELECT nonsense(page) AS p FROM clicks", "DuckDB says"),
        ("SELECT page, count(*) FROM clicks GROUP BY page", "column 2 has no name. Name it: ... AS name"),
        ("SELECT page AS _p FROM clicks", "column '_p' begins with _"),
        ("SELECT c.user_id, u.user_id FROM clicks c, users u", "two columns are called 'user_id'"),
        ("SELECT at - at AS age FROM clicks", "column 'age' is of type"),
        ("SELECT page FROM clicks LIMIT user_id", "LIMIT"),
        ("SELECT page FROM clicks ORDER BY page LIMIT 1 + 1", "a LIMIT that is not a number"),
        ("WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT a FROM t", "WITH RECURSIVE cannot be maintained"),
        ("SELECT page FROM clicks TABLESAMPLE 10%", "a sample in a view"),
        ("SELECT (SELECT country FROM users) AS c FROM clicks", "a subquery as a value that may have several rows. Select max(...)"),
        ("SELECT page FROM clicks WHERE NOT ((page, user_id) IN (SELECT country, user_id FROM users) AND page = 'a')", "IN over several columns under NOT"),
        ("SELECT page FROM clicks WHERE page IN (SELECT country, user_id FROM users)", "IN of 1 values over a query of 2 columns"),
        ("SELECT page FROM clicks c WHERE page = 'a' OR EXISTS (SELECT 1 FROM users u WHERE u.user_id > c.user_id)", "a correlation that is not an equality, here"),
        ("SELECT user_id FROM users u WHERE user_id IN (SELECT user_id FROM clicks c WHERE c.page = u.country ORDER BY page LIMIT 1)", "a correlated subquery with LIMIT"),
        ("SELECT sum(count(*)) AS n FROM clicks GROUP BY page", "an aggregate of an aggregate. Compute the inner one in a subquery."),
        ("SELECT page FROM TUMBLE(clicks, at)", "TUMBLE with 2 arguments. Write TUMBLE(topic, time, INTERVAL '1 minute')"),
        ("SELECT page FROM TUMBLE(clicks, at, INTERVAL '1 month')", "is no span of time with a fixed length above zero"),
        ("SELECT page FROM TUMBLE(clicks, at, page)", "page is no span of time"),
        ("SELECT session(at, '1 minute') AS s, count(*) AS n FROM clicks GROUP BY session(at, '1 minute')", "a session without a key"),
        ("SELECT page FROM clicks UNION SELECT user_id, country FROM users", "Invalid set operation due to column mismatch"),
        ("SELECT page FROM clicks HAVING page = 'a'", "HAVING without GROUP BY. Write WHERE."),
    ],
)  # fmt: skip
def test_what_cannot_be_maintained_is_refused_by_name_and_place(sql: str, told: str) -> None:
    with pytest.raises(SqlRefused) as caught:
        plan(sql)
    assert told in str(caught.value)
    assert caught.value.do


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT page, max(at - TIMESTAMPTZ '2020-01-01') AS m FROM clicks GROUP BY page",
        "SELECT at - TIMESTAMPTZ '2020-01-01' AS i, count(*) AS n FROM clicks GROUP BY 1",
        "SELECT count(DISTINCT at - TIMESTAMPTZ '2020-01-01') AS n FROM clicks",
        "SELECT country, max(to_days(user_id::INTEGER))::VARCHAR AS m FROM users GROUP BY country",
        "SELECT a.page FROM clicks a JOIN clicks b ON a.at - TIMESTAMPTZ '2020-01-01' = b.at - TIMESTAMPTZ '2020-01-01'",
    ],
)
def test_intervals_to_group_or_join_by_are_refused(sql: str) -> None:
    with pytest.raises(SqlRefused, match="an INTERVAL to group, join or compare by"):
        plan_view("v", sql, INPUTS)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT page::ENUM('/a', '/b') AS e, count(*) AS n FROM clicks GROUP BY 1",
        "SELECT count(DISTINCT country::ENUM('de', 'fr')) AS n FROM users",
        "SELECT user_id, max(country::ENUM('de', 'fr')) AS m FROM users GROUP BY user_id",
    ],
)
def test_enums_to_group_or_compare_by_are_refused(sql: str) -> None:
    with pytest.raises(SqlRefused, match="an ENUM to group, join or compare by"):
        plan_view("v", sql, INPUTS)
