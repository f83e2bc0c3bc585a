"""SQL views in event time: state that is past leaves, and rows are held back until they are final."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import SqlRefused
from headwater.log import TopicSpec
from headwater.process.plan import Plan
from headwater.process.sql.planner import Emit, plan_view
from headwater.records import schema_of
from headwater.testing import PlanBench

CLICKS = TopicSpec("clicks", schema_of({"page": "string", "user_id": "int64", "at": "timestamp"}), time="at")
START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
PER_MINUTE = """SELECT page, window_start, count(*) AS n, count(DISTINCT user_id) AS people
                FROM TUMBLE(clicks, at, INTERVAL '1 minute') GROUP BY page, window_start"""


def plan(sql: str, *, retain: int | None = 10 * SECOND, emit: Emit = "changes") -> Plan:
    return plan_view("v", sql, {"clicks": CLICKS}, retain=retain, emit=emit)


class Told:
    def __init__(self, made: Plan) -> None:
        self.bench = PlanBench(made)

    def at(self, second: int, *clicks: tuple[str, int, int]) -> set[tuple[Any, ...]]:
        """Clicks of (page, user, second), and then the watermark is at that second."""
        rows = [{"page": page, "user_id": user, "at": START + timedelta(seconds=when)} for page, user, when in clicks]
        mark = int(START.timestamp()) * SECOND + second * SECOND
        answer = self.bench.push({"clicks": pa.Table.from_pylist(rows, CLICKS.stored)}, mark)
        return {
            (row["page"], (row["window_start"] - START) // timedelta(seconds=1), *list(row.values())[2:])
            for row in answer.to_pylist()
        }

    def kept(self) -> int:
        """Rows of state that count; merging drops the others."""
        plan = self.bench.plan
        states = [self.bench.state(level, bucket) for level in range(plan.levels) for bucket in range(plan.buckets)]
        return sum(each.manifest.size.rows for state in states for each in state.arrangements.values())


def test_a_late_record_corrects_its_window() -> None:
    told = Told(plan(PER_MINUTE))
    assert told.at(65, ("/a", 1, 5), ("/a", 1, 62)) == {("/a", 0, 1, 1, 1), ("/a", 60, 1, 1, 1)}
    assert told.at(66, ("/a", 2, 58)) == {("/a", 0, 1, 1, -1), ("/a", 0, 2, 2, 1)}


def test_a_window_that_is_past_leaves_the_state_and_stays_in_the_view() -> None:
    told = Told(plan(PER_MINUTE))
    told.at(20, ("/a", 1, 5))
    assert told.at(71) == set(), "nothing is said of it"
    assert told.bench.view().num_rows == 1
    assert told.at(72, ("/a", 1, 5)) == {("/a", 0, 1, 1, 1)}, "had this come, which it cannot, nothing would be known"


@pytest.mark.slow
def test_state_does_not_grow_with_windows_that_are_past() -> None:
    told = Told(plan(PER_MINUTE))
    sizes = []
    for minute in range(60):
        told.at(60 * minute + 59, *((page, user, 60 * minute + user) for page in ("/a", "/b") for user in range(5)))
        sizes.append(told.kept())
    assert max(sizes[30:]) < 1.5 * max(sizes[:30]), "of 60 windows about as much as of 30"


def test_final_rows_appear_once_when_nothing_can_change_them_any_more() -> None:
    told = Told(plan(PER_MINUTE, emit="final"))
    assert told.at(20, ("/a", 1, 5), ("/a", 2, 20)) == set()
    assert told.at(65, ("/a", 3, 58), ("/a", 1, 65)) == set(), "ten seconds are still to come"
    assert told.at(70) == set()
    assert told.at(71) == {("/a", 0, 3, 3, 1)}
    assert told.at(131) == {("/a", 60, 1, 1, 1)}
    assert told.at(200) == set()


def test_a_hop_is_past_with_its_own_end() -> None:
    sql = """SELECT page, window_start, count(*) AS n
             FROM HOP(clicks, at, INTERVAL '30 seconds', INTERVAL '1 minute') GROUP BY page, window_start"""
    told = Told(plan(sql, emit="final"))
    assert told.at(5, ("/a", 1, 5)) == set()
    assert told.at(41) == {("/a", -30, 1, 1)}
    assert told.at(71) == {("/a", 0, 1, 1)}


def test_a_time_that_is_computed_anew_is_no_bound() -> None:
    moved = plan("""SELECT page, window_start, count(*) AS n FROM TUMBLE(
                    (SELECT page, at + INTERVAL '1 day' AS at FROM clicks), at, INTERVAL '1 minute')
                    GROUP BY page, window_start""")
    assert getattr(moved.nodes[0].operator, "until", None) is None


@pytest.mark.parametrize(
    ("sql", "retain"),
    [
        (PER_MINUTE, None),
        ("SELECT page, count(*) AS n FROM clicks GROUP BY page", 1),
        (PER_MINUTE.replace("page, window_start, count(*)", "page, count(*)"), 1),
    ],
)
def test_final_without_a_time_is_refused(sql: str, retain: int | None) -> None:
    with pytest.raises(SqlRefused, match="emit='final' without a time after which rows are final. Say retain="):
        plan(sql, retain=retain, emit="final")


def test_a_final_session_appears_once_nothing_can_prolong_it() -> None:
    sql = """SELECT page, window_start, window_end, count(*) AS n
             FROM SESSION(clicks, at, page, INTERVAL '5 seconds') GROUP BY ALL"""
    told = Told(plan(sql, emit="final"))

    def counts(found: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
        return {(page, start, n, weight) for page, start, _, n, weight in found}

    assert told.at(3, ("/a", 1, 1), ("/a", 2, 3)) == set()
    assert told.at(17, ("/a", 3, 8)) == set(), "late, and it prolongs the session"
    assert told.at(23) == set(), "a record of second 13 would not be late yet"
    assert counts(told.at(24)) == {("/a", 1, 3, 1)}
    assert told.at(60) == set()


def test_final_pairs_appear_once_nothing_can_match_any_more() -> None:
    sql = """SELECT c.page, c.at AS window_start, o.user_id AS other
             FROM clicks c LEFT JOIN clicks o ON c.page = o.page AND o.user_id > c.user_id
               AND o.at BETWEEN c.at AND c.at + INTERVAL '5 seconds'"""
    told = Told(plan(sql, emit="final"))
    assert told.at(3, ("/a", 1, 1), ("/a", 2, 3)) == set()
    assert told.at(16) == set()
    assert told.at(17) == {("/a", 1, 2, 1)}, "5 seconds for a partner, 10 for it to be late"
    assert told.at(19) == {("/a", 3, None, 1)}
