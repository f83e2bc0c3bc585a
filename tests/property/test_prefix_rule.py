"""The rule that proves a view: after every prefix of the input it is DuckDB's answer to the same SQL over it."""

from __future__ import annotations

import os
import random
from collections import Counter
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
SEEDS = int(os.environ.get("HEADWATER_SEEDS", "0"))
"""How many random ones to try as well as the fixed one: a landing does not hang on luck, `make prove` looks for it."""


def seeds() -> list[int]:
    return [20261116, *(random.randrange(1_000_000) for _ in range(SEEDS))]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMED if name not in QUICK])
def test_after_every_prefix_the_view_is_the_answer_over_it(name: str) -> None:
    for seed in seeds():
        follow(NAMED[name], seed, 6)


@pytest.mark.parametrize("name", QUICK)
def test_after_some_prefixes_the_view_is_the_answer_over_it(name: str) -> None:
    follow(NAMED[name], seeds()[0], 3)


def follow(query: str, seed: int, batches: int, *, oracle: str | None = None) -> None:
    """With `oracle`, a query that DuckDB has to answer alike: the view's own, where it leaves nothing open."""
    print(f"seed {seed}")  # noqa: T201
    plan = replace(plan_view("v", query, INPUTS), buckets=2)
    bench = PlanBench(plan)
    for prefix in prefixes(seed, batches):
        emitted = bench.push(prefix.pushed)
        assert bench.again().equals(emitted), "a batch that runs twice must say the same"
        if plan.key:
            _at_most_one_row_of_a_key_goes_and_one_comes(emitted, plan.key)
            keys = [repr(tuple(row.values())) for row in bench.view().select(list(plan.key)).to_pylist()]
            assert len(keys) == len(set(keys)), "no two rows agree in the key"
        assert found(bench) == answer(plan.oracle, prefix.held)
        assert oracle is None or found(bench) == answer(oracle, prefix.held)


def found(bench: PlanBench) -> list[tuple[object, ...]]:
    view = bench.view()
    weights = view["_weight"].to_numpy()
    return bag(view.drop_columns(["_weight"]).take(np.repeat(np.arange(len(weights)), weights)))


def _at_most_one_row_of_a_key_goes_and_one_comes(emitted: pa.Table, key: tuple[str, ...]) -> None:
    """Net: of a row that moves to another bucket unchanged, one says that it is gone, the other that it is there."""
    net: Counter[tuple[str, str]] = Counter()
    for row in emitted.to_pylist():
        weight = row.pop("_weight")
        net[repr([row[name] for name in key]), repr(row)] += weight
    assert set(net.values()) <= {-1, 0, 1}, "a row of a view with a key is there once or not at all"
    for sign in (-1, 1):
        keys = [held for (held, _), weight in net.items() if weight == sign]
        assert len(keys) == len(set(keys)), "two rows of one key"


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
