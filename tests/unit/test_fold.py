"""A user's own reducer: its records in order, its errors, and what it cannot do to the state."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import BadSchema, FunctionFailed
from headwater.process.keyed.fold import Fold
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.values import python_columns
from headwater.typenames import TIMESTAMP

INPUT = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("_partition", pa.int32()), ("_offset", pa.int64())])
COLUMNS = pa.schema([("n", pa.int64()), ("total", pa.float64())])
INITIAL = {"n": 0, "total": 0.0}


def add(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    state["n"] += 1
    state["total"] += 1 / record["x"]
    return state


def add_table(state: dict[str, Any], records: pa.Table) -> dict[str, Any]:
    for record in records.to_pylist():
        state = add(state, record)
    return state


def fold(function: Any = add, **more: Any) -> Fold:
    given: dict[str, Any] = {"input": INPUT, "key": ("k",), "columns": COLUMNS, "initial": INITIAL, **more}
    return Fold(function=function, pipeline="sums", topic="numbers", **given)


def records(*rows: tuple[int, float], offset: int = 0) -> pa.Table:
    told = [{"k": k, "x": x, "_partition": 3, "_offset": offset + n} for n, (k, x) in enumerate(rows)]
    return pa.Table.from_pylist(told, INPUT)


class Bench:
    def __init__(self, operator: Fold) -> None:
        self.operator, self.state = operator, MemoryState()
        self.dead: list[dict[str, Any]] = []

    def push(self, changes: pa.Table) -> list[tuple[Any, ...]]:
        answer = self.operator.step(self.state, {0: changes}, None)
        self.dead += answer.dead.to_pylist() if answer.dead is not None else []
        return sorted(tuple(row.values()) for row in answer.rows.to_pylist())


@pytest.mark.parametrize(("by", "function"), [("record", add), ("arrow", add_table)])
def test_a_key_is_folded_over_its_records_and_the_old_row_is_taken_away(by: Any, function: Any) -> None:
    bench = Bench(fold(function, by=by))
    assert bench.push(records((1, 1.0), (2, 4.0), (1, 2.0))) == [(1, 2, 1.5, 1), (2, 1, 0.25, 1)]
    assert bench.push(records((1, 4.0), offset=3)) == [(1, 2, 1.5, -1), (1, 3, 1.75, 1)]


def test_records_come_in_the_order_of_the_log_in_whichever_order_they_arrive() -> None:
    seen: list[tuple[int, float]] = []

    def look(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        seen.append((record["k"], record["x"]))
        assert set(record) == {"k", "x"}
        return state

    batch = records(*((n % 3, float(n)) for n in range(60)))
    fold(look).step(MemoryState(), {0: batch.take(np.random.default_rng(1).permutation(60))}, None)
    for key in range(3):
        assert [x for k, x in seen if k == key] == [float(n) for n in range(60) if n % 3 == key]


def test_a_fold_that_changes_nothing_says_nothing() -> None:
    bench = Bench(fold(lambda state, record: {"n": 1, "total": math.nan}))
    assert len(bench.push(records((1, 1.0)))) == 1
    assert bench.push(records((1, 2.0), offset=1)) == []


def test_what_the_function_does_to_its_arguments_or_its_results_does_not_reach_the_state() -> None:
    kept: list[dict[str, Any]] = []

    def careless(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        for old in kept:
            old["n"] = -999
            old["list"].append("spoilt")
        state["list"].append(record["x"])
        kept.append(state)
        if record["x"] < 0:
            raise ValueError("negative")
        return {"n": state["n"] + 1, "list": state["list"]}

    columns = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.float64()))])
    bench = Bench(fold(careless, columns=columns, initial={"n": 0, "list": []}, on_error="dead"))
    bench.push(records((1, 1.0), (1, -5.0), (1, 2.0), (2, 8.0)))
    assert bench.push(records((1, 3.0), offset=4)) == [(1, 2, [1.0, 2.0], -1), (1, 3, [1.0, 2.0, 3.0], 1)]
    assert [json.loads(letter["record"]) for letter in bench.dead] == [{"k": 1, "x": -5.0}]


def test_a_function_that_raises_stops_with_the_record_and_the_users_own_line() -> None:
    with pytest.raises(FunctionFailed) as told:
        Bench(fold()).push(records((7, 1.0), (8, 0.0), offset=40))
    error = told.value
    assert (error.pipeline, error.topic, error.partition, error.offset) == ("sums", "numbers", 3, 41)
    assert error.key == "k=8"
    assert error.error == "ZeroDivisionError: float division by zero"
    assert len(error.trace) == 1, "nothing of ours"
    assert error.trace[0].startswith(f"{__file__}:")
    assert error.trace[0].endswith('in add: state["total"] += 1 / record["x"]')
    assert "on the record at offset 41 of 'numbers', partition 3, key k=8: ZeroDivisionError" in str(error)


def test_with_tables_the_range_of_records_is_told() -> None:
    with pytest.raises(FunctionFailed, match="on the records at offsets 10 to 12 of 'numbers'") as told:
        Bench(fold(add_table, by="arrow")).push(records((1, 1.0), (1, 0.0), (1, 2.0), offset=10))
    assert [frame.partition(" in ")[2].partition(":")[0] for frame in told.value.trace] == ["add_table", "add"]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "the function returned NoneType, not a dict with n: int64, total: double"),
        ({"n": 1}, "column 'total' is missing in what the function returned"),
        ({"n": 1, "total": 1.0, "more": 2}, "column 'more' is not one of n: int64, total: double"),
        ({"n": 1.5, "total": 1.0}, "column 'n': 1.5 is not int64"),
        ({"n": True, "total": 1.0}, "column 'n': True is not int64"),
        ({"n": 2**63, "total": 1.0}, "column 'n': 9223372036854775808 is not int64"),
        ({"n": "one", "total": 1.0}, "column 'n': 'one' is not int64"),
    ],
)
def test_a_result_that_the_columns_do_not_allow_is_told_with_key_and_column(returned: Any, why: str) -> None:
    with pytest.raises(FunctionFailed) as told:
        Bench(fold(lambda state, record: returned)).push(records((5, 1.0)))
    assert told.value.key == "k=5"
    assert told.value.error.startswith(why)


def test_a_call_that_does_not_fit_names_the_function() -> None:
    with pytest.raises(FunctionFailed) as told:
        Bench(fold(lambda state: state)).push(records((5, 1.0)))
    assert told.value.error.startswith("TypeError")
    assert "Bench(fold(lambda state: state))" in told.value.trace[0]


def test_dead_letters_carry_the_record_and_the_fold_goes_on_from_before_it() -> None:
    bench = Bench(fold(on_error="dead"))
    assert bench.push(records((1, 1.0), (1, 0.0), (1, 2.0), (2, 0.0))) == [(1, 2, 1.5, 1)]
    assert [(json.loads(d["record"]), d["topic"], d["partition"], d["offset"]) for d in bench.dead] == [
        ({"k": 1, "x": 0.0}, "numbers", 3, 1),
        ({"k": 2, "x": 0.0}, "numbers", 3, 3),
    ]
    assert bench.dead[0]["error"].startswith(f"ZeroDivisionError: float division by zero ({__file__}:")
    assert bench.push(records((2, 2.0), offset=4)) == [(2, 1, 0.5, 1)], "of a key without a state nothing was kept"


def test_with_tables_all_records_of_the_call_are_dead() -> None:
    bench = Bench(fold(add_table, by="arrow", on_error="dead"))
    assert bench.push(records((1, 1.0), (1, 0.0), (2, 1.0))) == [(2, 1, 1.0, 1)]
    assert [letter["offset"] for letter in bench.dead] == [0, 1]


def test_values_are_within_a_batch_what_they_are_after_it() -> None:
    """A state that is handed on from record to record is the one that would have come back from Arrow."""
    columns = pa.schema(
        [("f", pa.float64()), ("s", pa.float32()), ("d", pa.decimal128(9, 2)), ("at", TIMESTAMP), ("t", pa.string())]
    )
    seen: list[dict[str, Any]] = []

    def odd(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(state))
        at = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
        return {"f": 1, "s": 0.1, "d": Decimal("1.5"), "at": at, "t": "ü"}

    initial = dict.fromkeys(columns.names)
    Bench(fold(odd, columns=columns, initial=initial)).push(records((1, 1.0), (1, 1.0)))
    together = [{name: (type(value), str(value)) for name, value in row.items()} for row in seen]
    seen.clear()
    apart = Bench(fold(odd, columns=columns, initial=initial))
    for offset in range(2):
        apart.push(records((1, 1.0), offset=offset))
    assert [{name: (type(value), str(value)) for name, value in row.items()} for row in seen] == together


def test_a_batch_that_runs_twice_gives_the_same_bytes() -> None:
    chance = random.Random(3)

    def mean(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + 1, "total": (state["total"] * state["n"] + record["x"]) / (state["n"] + 1)}

    operator, state = fold(mean), MemoryState()
    for number in range(6):
        rows = [(chance.randrange(20), chance.choice([0.1, 0.2, 0.3, 1e16])) for _ in range(100)]
        batch = records(*rows, offset=number * 100)
        again = state.copy()
        one = operator.step(state, {0: batch}, None).rows
        two = operator.step(again, {0: batch.take(np.random.default_rng(number).permutation(100))}, None).rows
        assert one.equals(two)
        assert state.held() == again.held()


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadSchema, match="initial: column 'n': 'x' is not int64"):
        fold(initial={"n": "x"})
    with pytest.raises(BadSchema, match="cannot be called \\['k'\\]"):
        fold(columns=pa.schema([("k", pa.int64())]), initial={})
    with pytest.raises(BadSchema, match="initial has \\['m'\\]"):
        fold(initial={"m": 1})
    with pytest.raises(BadSchema, match="retain needs the event time"):
        fold(retain=5)


def test_columns_as_lists_are_those_of_arrow() -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int32()),
            "u": pa.array([2**64 - 1, None, 0], pa.uint64()),
            "f": pa.array([0.5, None, math.inf]),
            "f32": pa.array([0.5, None, 2.0], pa.float32()),
            "b": pa.array([True, None, False]),
            "s": pa.array(["a", None, "ü"]),
            "y": pa.array([b"a", None, b""]),
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC), None, datetime(1900, 1, 1, 0, 0, 0, 7, UTC)], TIMESTAMP),
            "l": pa.array([[1], None, []]),
        }
    )
    assert python_columns(table) == [column.to_pylist() for column in table.columns]
    assert python_columns(table.slice(0, 0)) == [[] for _ in table.columns]
    assert python_columns(table.slice(1, 2)) == [column.to_pylist() for column in table.slice(1, 2).columns]
