"""A group by hopping windows is added up by panes first, wherever that gives the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.process import duck
from headwater.process.plan import Plan, Send
from headwater.process.sql import aggregates
from headwater.process.sql.panes import PANE
from headwater.process.sql.planner import plan_view
from tests.property.changes import INPUTS, bag, prefixes
from tests.property.test_prefix_rule import NAMED

HOP = "HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute')"
BY_PANES = [
    "hop",
    "hop-in-group-by",
    "hop-of-a-table",
    "hop-distinct-and-extremes",
    "hop-around-the-epoch",
    "hop-without-its-windows",
    "hop-by-what-is-computed-of-its-windows",
    "hop-in-grouping-sets",
    "hop-of-distinct",
]


def read(plan: Plan) -> list[tuple[str, Send]]:
    return [(each.topic, send) for each in plan.reads for send in each.sends]


def by_panes(query: str) -> list[bool]:
    return [f'"{PANE}"' in str(send.sql) for _, send in read(plan_view("v", query, INPUTS))]


@pytest.mark.parametrize("name", BY_PANES)
def test_by_panes_the_partial_results_are_those_by_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paned = read(plan_view("v", NAMED[name], INPUTS))
    monkeypatch.setattr(aggregates, "by_panes", lambda sql: sql)
    by_rows = read(plan_view("v", NAMED[name], INPUTS))
    assert any(send.sql != other.sql for (_, send), (_, other) in zip(paned, by_rows, strict=True))
    for prefix in prefixes(7, 6):
        for (topic, send), (_, other) in zip(paned, by_rows, strict=True):
            rows = prefix.pushed[topic]
            made = duck.ask(str(send.sql), changes=rows)
            expected = duck.ask(str(other.sql), changes=rows)
            assert made.schema == expected.schema
            assert bag(made) == bag(expected)


@pytest.mark.parametrize("name", BY_PANES)
def test_whatever_is_grouped_by_the_window_alone_goes_by_panes(name: str) -> None:
    assert any(by_panes(NAMED[name]))


def test_a_join_s_pairs_go_by_panes_too() -> None:
    sends = [send for node in plan_view("v", NAMED["hop-of-a-join"], INPUTS).nodes for send in node.sends]
    assert any(f'"{PANE}"' in str(send.sql) for send in sends)


@pytest.mark.parametrize(
    "query",
    [
        NAMED["hop-not-a-multiple"],
        NAMED["hop-with-its-records"],
        f"SELECT page, count(*) AS c FROM {HOP} WHERE window_start > TIMESTAMPTZ '2026-01-01' GROUP BY page",
        f"SELECT page, count(*) FILTER (at < window_end) AS c FROM {HOP} GROUP BY page, window_start",
        f"SELECT page, max(window_end) AS last FROM {HOP} GROUP BY page",
        f"SELECT at = window_start AS begins, count(*) AS c FROM {HOP} GROUP BY at = window_start",
        f"SELECT window_start, sum(price) AS s FROM {HOP} GROUP BY window_start",
        f"SELECT count(*) AS c FROM {HOP}",
        NAMED["hop"].replace("20 seconds", "1 minute"),
        NAMED["tumble"],
    ],
)
def test_where_windows_are_not_made_of_panes_rows_are_put_into_them(query: str) -> None:
    assert not any(by_panes(query))


def test_a_row_without_a_time_is_asked_for_nothing() -> None:
    query = f"SELECT window_start, sum(page::INTEGER) AS s FROM {HOP} GROUP BY window_start"
    ((_, send),) = read(plan_view("v", query, INPUTS))
    assert by_panes(query) == [True]
    rows = pa.Table.from_pylist([{"page": "no number", "at": None}], INPUTS["clicks"].stored)
    assert duck.ask(str(send.sql), changes=rows).num_rows == 0
