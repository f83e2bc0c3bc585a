"""Groups that are bound to a time leave the state without a word."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.process.keyed.aggregate import Aggregate, Distinct, Extreme
from headwater.process.keyed.memory import MemoryState
from headwater.typenames import TIMESTAMP

INPUT = pa.schema([("end", TIMESTAMP), ("page", pa.string()), ("_weight", pa.int64())])
VALUES = pa.schema([("end", TIMESTAMP), ("page", pa.string()), ("_value", pa.int64()), ("d", pa.int64())])
VISITORS = (Distinct(pa.int64(), ("d",)),)


def clicks(*rows: tuple[int | None, str, int]) -> dict[int, pa.Table]:
    """As they arrive: how many, and whose."""
    many = [{"end": end, "page": page, "_weight": 1} for end, page, _ in rows]
    whose = [{"end": end, "page": page, "_value": user, "d": 1} for end, page, user in rows]
    return {0: pa.Table.from_pylist(many, INPUT), 1: pa.Table.from_pylist(whose, VALUES)}


def said(answer: Any) -> list[tuple[Any, ...]]:
    rows = answer.rows.set_column(0, "end", answer.rows["end"].cast(pa.int64())).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def kept(state: MemoryState) -> int:
    return sum(ref.rows for each in state.arrangements.values() for ref in each.manifest.refs)


def test_a_window_past_its_retention_is_dropped_and_its_row_stays_in_the_view() -> None:
    operator = Aggregate(INPUT, ("end", "page"), distinct=VISITORS, until="end", retain=5)
    state = MemoryState()
    first = clicks((100, "/a", 1), (100, "/a", 2), (200, "/a", 1), (None, "/a", 1))
    assert said(operator.step(state, first, 90)) == [
        (100, "/a", 2, 2, 1),
        (200, "/a", 1, 1, 1),
        (None, "/a", 1, 1, 1),
    ]
    assert said(operator.step(state, clicks((100, "/a", 1)), 105)) == [(100, "/a", 2, 2, -1), (100, "/a", 2, 3, 1)]
    assert said(operator.step(state, {}, 106)) == [], "nothing is said"
    again = operator.step(state.copy(), clicks((100, "/a", 7)), 106)
    assert said(again) == [(100, "/a", 1, 1, 1)], "the state knows nothing of it any more"
    assert said(operator.step(state, clicks((200, "/a", 9)), 150)) == [(200, "/a", 1, 1, -1), (200, "/a", 2, 2, 1)]


def test_what_is_changed_and_past_in_one_batch_has_its_greatest_value_once_more() -> None:
    operator = Aggregate(INPUT, ("end", "page"), extremes=(Extreme("most", pa.int64(), "max"),), until="end", retain=5)
    state = MemoryState()

    def numbers(*rows: tuple[int, int]) -> dict[int, pa.Table]:
        told = [{"end": 100, "page": "/a", "_value": value, "_weight": weight} for value, weight in rows]
        many = [{"end": 100, "page": "/a", "_weight": sum(weight for _, weight in rows)}]
        schema = pa.schema([*INPUT.remove(2), ("_value", pa.int64()), ("_weight", pa.int64())])
        return {0: pa.Table.from_pylist(many, INPUT), 1: pa.Table.from_pylist(told, schema)}

    assert said(operator.step(state, numbers((1, 1), (2, 1)), 90)) == [(100, "/a", 2, 2, 1)]
    assert said(operator.step(state, numbers((2, -1), (3, 1)), 1000)) == [(100, "/a", 2, 2, -1), (100, "/a", 3, 2, 1)]
    assert said(operator.step(state, {}, 1001)) == []
    assert said(operator.step(state, numbers((1, 1)), 1002)) == [(100, "/a", 1, 1, 1)]


@pytest.mark.slow
def test_state_does_not_grow_with_the_number_of_windows_that_are_past() -> None:
    operator = Aggregate(INPUT, ("end", "page"), distinct=VISITORS, until="end", retain=5)
    state = MemoryState()
    most = 0
    for end in range(0, 2000, 10):  # 3200 rows, if none were dropped
        operator.step(state, clicks(*((end, page, user) for page in ("/a", "/b") for user in range(3))), end)
        most = max(most, kept(state))
    assert most < 600
