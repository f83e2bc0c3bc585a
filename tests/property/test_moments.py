"""`now()` in a view: rows appear and leave by ticks, and after each prefix, ticks among it, the view is the answer."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headwater.errors import SqlRefused
from headwater.process.keyed import expire
from headwater.process.sql.planner import plan_view
from headwater.process.ticks import TICKS
from headwater.testing import PlanBench
from tests.property.changes import INPUTS, answer, prefixes
from tests.property.test_prefix_rule import found, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
VIEWS = {
    "the-last-minute": "SELECT id, page, at FROM clicks WHERE at > now() - INTERVAL '1 minute'",
    "until-now": "SELECT id, n FROM clicks WHERE at <= now() AND n > 1",
    "from-now-on": "SELECT id, n FROM clicks WHERE now() < at",
    "between": "SELECT id, n FROM clicks WHERE at BETWEEN now() - INTERVAL '90 seconds' AND current_timestamp",
    "both-sides-of-and": """SELECT page, count(*) AS c, max(n) AS m FROM clicks
                            WHERE (at >= now() - INTERVAL 2 MINUTE AND at + INTERVAL 5 SECOND < now()) AND n IS NOT NULL
                            GROUP BY page""",
    "how-long-ago": "SELECT id, at FROM clicks WHERE now() - at < INTERVAL '1 minute'",
    "in-having": """SELECT user_id, max(at) AS last FROM clicks GROUP BY user_id
                    HAVING max(at) > now() - INTERVAL '30 seconds'""",
    "of-a-table": "SELECT country, rate FROM rates WHERE at > now() - INTERVAL '100 seconds'",
    "joined": """SELECT c.id, u.country FROM clicks c JOIN users u ON c.user_id = u.user_id
                 WHERE c.at > now() - INTERVAL '1 minute'""",
    "of-the-side-that-may-be-missing": """SELECT u.user_id, c.id FROM users u LEFT JOIN clicks c USING (user_id)
                                          WHERE c.at > now() - INTERVAL '1 minute'""",
    "nested": """SELECT count(*) AS n, sum(c) AS s FROM (
                   SELECT user_id, count(*) AS c FROM clicks WHERE at > now() - INTERVAL '1 minute' GROUP BY ALL)""",
    "in-a-subquery": """SELECT user_id, country FROM users
                        WHERE user_id NOT IN (SELECT user_id FROM clicks WHERE at > now() - INTERVAL '1 minute')""",
    "top": "SELECT id, n FROM clicks WHERE at > now() - INTERVAL '1 minute' ORDER BY n DESC NULLS LAST, id LIMIT 3",
}


def _follow(sql: str, seed: int) -> None:
    chance = random.Random(seed)
    bench = PlanBench(replace(plan_view("v", sql, INPUTS), buckets=2))
    ticks: list[datetime] = []
    for number, prefix in enumerate(prefixes(seed, 10)):
        told = [START + timedelta(seconds=30 * number + chance.randrange(-20, 60)) for _ in range(chance.randrange(3))]
        ticks += told
        came = pa.Table.from_pylist([{"at": at} for at in told], TICKS.schema)
        pushed = {} if chance.random() < 0.3 else prefix.pushed
        if not pushed:
            bench.push({TICKS.name: came})
            assert bench.again().equals(bench.output[-1]), "a batch that runs twice must say the same"
            came = came.slice(0, 0)
        bench.push({**prefix.pushed, TICKS.name: came})
        assert bench.again().equals(bench.output[-1])
        held = {**prefix.held, TICKS.name: pa.Table.from_pylist([{"at": at} for at in ticks], TICKS.schema)}
        assert found(bench) == answer(bench.plan.oracle, held)


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_after_every_prefix_the_view_is_the_answer_at_its_last_tick(name: str) -> None:
    for seed in seeds():
        print(f"seed {seed}")  # noqa: T201
        _follow(VIEWS[name], seed)


def test_the_rule_catches_rows_that_do_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expire, "_negated", lambda rows: rows.slice(0, 0))
    with pytest.raises(AssertionError):
        _follow(VIEWS["the-last-minute"], 1)


def test_only_rows_that_are_to_appear_or_to_leave_are_kept() -> None:
    bench = PlanBench(plan_view("v", VIEWS["the-last-minute"], INPUTS))
    rows = [{"id": number, "at": START + timedelta(seconds=number)} for number in range(300)]
    for number in range(0, 300, 10):
        ticked = pa.Table.from_pylist([{"at": START + timedelta(seconds=number + 10)}], TICKS.schema)
        clicks = pa.Table.from_pylist(rows[number : number + 10], INPUTS["clicks"].stored)
        bench.push({"clicks": clicks, TICKS.name: ticked})
    assert bench.view().num_rows == 59
    states = [bench.state(0, bucket) for bucket in range(bench.plan.buckets)]
    entries = sum(state.arrangements["0 due"].manifest.size.rows for state in states)
    assert entries == 59, "one entry for each row that is to leave"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT id, now() AS t FROM clicks", "line 1, column 12: now() gives another answer every time"),
        ("SELECT id FROM clicks WHERE at > now() OR n = 1", "now() in this condition"),
        ("SELECT id FROM clicks WHERE at > now() - INTERVAL '1 month'", "now() in this condition"),
        ("SELECT id FROM clicks WHERE NOT at > now()", "now() in this condition"),
        ("SELECT id FROM clicks WHERE n > random()", "random() gives another answer every time"),
        ("SELECT c.id FROM clicks c JOIN users u ON c.user_id = u.user_id AND c.at > now()", "now() gives another"),
        ("SELECT id, rank() OVER (ORDER BY at) AS r FROM clicks QUALIFY r > 1 AND at > now()", "now() gives another"),
    ],
)  # fmt: skip
def test_any_other_now_is_refused(sql: str, told: str) -> None:
    with pytest.raises(SqlRefused) as caught:
        plan_view("v", sql, INPUTS)
    assert told in str(caught.value)
