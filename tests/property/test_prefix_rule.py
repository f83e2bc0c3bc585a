"""The rule that proves a view: after every prefix of the input it is DuckDB's answer to the same SQL over it."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.process.keyed import arrangement
from headwater.process.sql.planner import plan_view
from headwater.testing import PlanBench
from tests.property.changes import INPUTS, answer, bag, prefixes

NAMED = {
    name: query.strip()
    for name, _, query in (
        each.strip().removeprefix("-- ").partition("\n")
        for each in Path(__file__).with_name("queries.sql").read_text().split("\n", 1)[1].split(";\n")
    )
}
QUICK = list(NAMED)[::9]
SEEDS = int(os.environ.get("HEADWATER_SEEDS", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMED if name not in QUICK])
def test_after_every_prefix_the_view_is_the_answer_over_it(name: str) -> None:
    for _ in range(SEEDS):
        follow(NAMED[name], random.randrange(1_000_000), 6)


@pytest.mark.parametrize("name", QUICK)
def test_after_some_prefixes_the_view_is_the_answer_over_it(name: str) -> None:
    follow(NAMED[name], random.randrange(1_000_000), 3)


def follow(query: str, seed: int, batches: int) -> None:
    print(f"seed {seed}")  # noqa: T201
    plan = replace(plan_view("v", query, INPUTS), buckets=2)
    bench = PlanBench(plan)
    for prefix in prefixes(seed, batches):
        emitted = bench.push(prefix.pushed)
        assert bench.again().equals(emitted), "a batch that runs twice must say the same"
        if plan.key:
            _no_row_comes_and_goes(emitted)
            keys = [repr(tuple(row.values())) for row in bench.view().select(list(plan.key)).to_pylist()]
            assert len(keys) == len(set(keys)), "no two rows agree in the key"
        if any(rows.num_rows for rows in bench.output):  # a total over nothing begins with the first record
            assert found(bench) == answer(plan.oracle, prefix.held)


def found(bench: PlanBench) -> list[tuple[object, ...]]:
    view = bench.view()
    weights = view["_weight"].to_numpy()
    return bag(view.drop_columns(["_weight"]).take(np.repeat(np.arange(len(weights)), weights)))


def _no_row_comes_and_goes(emitted: pa.Table) -> None:
    came: dict[bool, set[str]] = {True: set(), False: set()}
    for row in emitted.to_pylist():
        came[row.pop("_weight") > 0].add(repr(row))
    assert not came[True] & came[False], "a batch does not take away what it gives"


def test_the_rule_catches_an_operator_that_forgets_to_retract(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = lambda self, wanted: self.shape.stored.empty_table()  # noqa: E731
    monkeypatch.setattr(arrangement.Arrangement, "newest", forgetful)
    with pytest.raises(AssertionError):
        follow(NAMED["count"], 1, 12)


def test_the_rule_catches_a_join_that_forgets_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = lambda self, wanted: self.shape.schema.empty_table()  # noqa: E731
    monkeypatch.setattr(arrangement.Arrangement, "gather", forgetful)
    with pytest.raises(AssertionError):
        follow(NAMED["left-join"], 1, 12)
