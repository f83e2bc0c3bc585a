"""Groups by the text of a time are grouped by the span that has it, wherever that comes to the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.process import duck
from headwater.process.keyed.aggregate import Aggregate
from headwater.process.keyed.counting import VALUE
from headwater.process.plan import Send
from headwater.process.sql import aggregates
from headwater.process.sql.planner import plan_view
from headwater.process.sql.spans import by_spans
from tests.property.changes import INPUTS, bag, prefixes
from tests.property.test_prefix_rule import NAMED

BY_SPANS = ["calendar", "calendar-by-text", "calendar-by-text-of-a-table", "calendar-by-text-at-the-ends-of-time"]


TEXT = """coalesce(strftime(make_timestamp(epoch_us("at")), '%Y'), strftime("at", '%Y'))"""


def sends(query: str) -> list[tuple[str, Send]]:
    return [(read.topic, send) for read in plan_view("v", query, INPUTS).reads for send in read.sends]


@pytest.mark.parametrize("name", BY_SPANS)
def test_what_groups_come_to_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_view("v", NAMED[name], INPUTS)
    by_span = sends(NAMED[name])
    monkeypatch.setattr(aggregates, "by_spans", lambda sql: sql)
    by_text = sends(NAMED[name])
    assert any(send.sql != other.sql for (_, send), (_, other) in zip(by_span, by_text, strict=True))
    for prefix in prefixes(11, 6):
        for (topic, send), (_, other) in zip(by_span, by_text, strict=True):
            operator = plan.nodes[send.node].operator
            assert isinstance(operator, Aggregate)
            rows = prefix.pushed[topic]
            found = duck.ask(str(send.sql), changes=rows)
            expected = duck.ask(str(other.sql), changes=rows)
            assert found.schema == expected.schema
            assert bag(added_up(found, operator)) == bag(added_up(expected, operator))


def added_up(rows: pa.Table, by: Aggregate) -> pa.Table:
    """Groups of several spans may have the same text: what they come to together."""
    own = [name for name in rows.schema.names if name in (*by.keys, VALUE)]
    how = {name: dict(by.how).get(name, "sum") for name in rows.schema.names if name not in own}
    sums = ", ".join(f"{each}({duck.quoted(name)}) AS {duck.quoted(name)}" for name, each in how.items())
    return duck.ask(f"SELECT {duck.columns(own)}, {sums} FROM rows GROUP BY ALL", rows=rows)


@pytest.mark.parametrize(
    ("form", "span"),
    [
        ("%Y-%m-%d", "day"),
        ("%j of %Y", "day"),
        ("%Y-%m-%d %H", "hour"),
        ("%-I %p", "hour"),
        ("%H:%M", "minute"),
        ("100%% of %a", "day"),
    ],
)
def test_the_span_is_the_longest_in_which_the_text_stays(form: str, span: str) -> None:
    query = f"SELECT strftime(at, '{form}') AS t, count(*) AS c FROM clicks GROUP BY strftime(at, '{form}')"
    assert f"DATE_TRUNC('{span.upper()}'" in str(sends(query)[0][1].sql)


@pytest.mark.parametrize("form", ["%S", "%H:%M:%f", "%c", "always", "%g"])
def test_formats_that_tell_less_than_a_minute_or_something_else_stay(form: str) -> None:
    query = f"SELECT strftime(at, '{form}') AS t, count(*) AS c FROM clicks GROUP BY strftime(at, '{form}')"
    assert "DATE_TRUNC" not in str(sends(query)[0][1].sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT d, max(d) AS m FROM (SELECT {} AS d FROM changes) GROUP BY d",
        "SELECT d, count(*) AS c FROM (SELECT {} AS d FROM changes) WHERE d > '2020' GROUP BY d",
        "SELECT d, c, count(*) AS n FROM (SELECT d, upper(d) AS c FROM (SELECT {} AS d FROM changes)) GROUP BY d, c",
        "SELECT d, count(*) AS n FROM (SELECT s.a AS d FROM (SELECT s, {} AS a FROM changes)) GROUP BY d",
        "SELECT d, count(*) AS n FROM (SELECT DISTINCT {} AS d FROM changes) GROUP BY d",
        "SELECT d, count(*) AS n FROM (SELECT {} AS d FROM changes) GROUP BY d HAVING count(*) > 1",
        "SELECT d, count(*) AS n FROM (SELECT strftime(\"at\", '%Y') AS d FROM changes) GROUP BY d",
    ],
)
def test_a_text_that_somebody_asks_for_stays(sql: str) -> None:
    assert by_spans(sql.format(TEXT)) == sql.format(TEXT)


def test_a_text_that_is_grouped_by_alone_does_not() -> None:
    sql = f"SELECT d, count(*) AS n FROM (SELECT {TEXT} AS d FROM changes) GROUP BY d"
    assert "DATE_TRUNC('DAY'" in by_spans(sql)
