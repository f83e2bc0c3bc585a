"""The rule of test_prefix_rule over queries that nobody thought of: constructs nested in each other at random."""

from __future__ import annotations

import random

import pytest

from headwater.errors import SqlRefused
from headwater.process.sql.planner import plan_view
from tests.property.changes import INPUTS
from tests.property.generated import generated
from tests.property.test_prefix_rule import SEEDS, follow

FIXED = range(40)
BATCHES = 4


def _seeds() -> list[int]:
    return [*FIXED, *(random.randrange(1_000_000) for _ in range(20 * SEEDS))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", _seeds())
def test_after_every_prefix_a_generated_view_is_the_answer_over_it(seed: int) -> None:
    query = generated(seed)
    print(f"seed {seed}: {query}")  # noqa: T201
    if not _is_refused(query):
        follow(query, seed, BATCHES, oracle=query)


def test_most_generated_queries_are_accepted() -> None:
    refused = [seed for seed in range(100) if _is_refused(generated(seed))]
    assert len(refused) <= 10, f"refused: seeds {refused}"


def _is_refused(query: str) -> bool:
    try:
        plan_view("v", query, INPUTS)
    except SqlRefused:
        return True
    return False
