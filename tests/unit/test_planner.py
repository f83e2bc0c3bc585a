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


def test_a_join_and_an_aggregation_are_two_operators_and_one_side_runs_in_the_source() -> None:
    made = plan(
        "SELECT c.page, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.user_id "
        "WHERE u.country = 'de' GROUP BY c.page"
    )
    assert [type(level.operator) for level in made.levels] == [Join, Aggregate]
    assert [(read.topic, read.columns) for read in made.reads] == [
        ("clicks", ("user_id", "page")),
        ("users", ("user_id", "country", "_weight")),
    ]
    assert "'de'" in made.reads[1].sql
    assert "'de'" not in str(made.levels)
    assert made.key == ("page",)
    assert made.schema == pa.schema([("page", pa.string()), ("n", pa.int64())])


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
        ("SELECT", "view 'v': a view without FROM"),
        ("nonsense here", "view 'v': not one SELECT statement. Write a view as one SELECT."),
        ("SELECT page FROM clicks GROUP BY (page", "view 'v', line 1, column 38: not SQL"),
        ("DELETE FROM clicks", "not one SELECT statement"),
        ("SELECT 1 AS a FROM clicks GROUP BY 1; SELECT 2", "not one SELECT statement"),
        ("SELECT page, count(*) AS n FROM click GROUP BY page", "line 1, column 33: there is no topic 'click'. Topics here: clicks, users."),
        ("SELECT paeg, count(*) AS n FROM clicks GROUP BY paeg", "Column 'paeg' could not be resolved"),
        ("SELECT page,\n max(at) AS m FROM clicks GROUP BY page", "line 2, column 6: MAX cannot be maintained yet. Use count"),
        ("SELECT page, count(*) AS n FROM clicks", "a view without GROUP BY cannot be maintained yet"),
        ("SELECT count(*) AS n FROM clicks GROUP BY page", "the grouping columns are not all selected"),
        ("SELECT page, at, count(*) AS n FROM clicks GROUP BY page", 'clicks."at" is neither grouped nor counted'),
        ("SELECT page, count(*) AS n FROM clicks LEFT JOIN users USING (user_id) GROUP BY page", "a LEFT JOIN cannot be maintained yet"),
        ("SELECT page, count(*) AS n FROM clicks ASOF JOIN users USING (user_id) GROUP BY page", "a ASOF JOIN"),
        ("SELECT page, count(*) AS n FROM clicks, users GROUP BY page", "JOIN"),
        ("SELECT page, count(*) AS n FROM clicks JOIN users ON at > now() GROUP BY page", "now() gives another answer every time"),
        ("SELECT page, count(*) AS n FROM clicks c JOIN users u ON c.page = u.user_id GROUP BY page", "c.page is string, u.user_id is int32"),
        ("SELECT page, count(*) AS n FROM clicks GROUP BY page ORDER BY n LIMIT 3", "cannot be maintained yet"),
        ("WITH x AS (SELECT 1) SELECT page, count(*) AS n FROM clicks GROUP BY page", "WITH cannot be maintained yet"),
        ("SELECT page, count(*) OVER () AS n FROM clicks GROUP BY page", "a window function cannot be maintained yet"),
        ("SELECT page, count(*) AS n FROM TUMBLE(clicks, at, '1 minute') GROUP BY page", "a table function"),
        ("SELECT page, count(*) AS n FROM read_csv('/etc/passwd') GROUP BY page", "a table function"),
        ("SELECT nonsense(page) AS p, count(*) AS n FROM clicks GROUP BY 1", "DuckDB says"),
        ("SELECT DISTINCT page FROM clicks GROUP BY page", "DISTINCT cannot be maintained yet"),
        ("SELECT page, count(*) AS n FROM clicks GROUP BY ROLLUP (page)", "cannot be maintained yet"),
    ],
)  # fmt: skip
def test_what_cannot_be_maintained_is_refused_by_name_and_place(sql: str, told: str) -> None:
    with pytest.raises(SqlRefused) as caught:
        plan(sql)
    assert told in str(caught.value)
    assert caught.value.do
