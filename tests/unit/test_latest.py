"""The newest record of each key, as weighted rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import BadSchema
from headwater.process.keyed import latest as module
from headwater.process.keyed.latest import Latest
from headwater.process.keyed.memory import MemoryState
from headwater.typenames import TIMESTAMP

STREAM = pa.schema(
    [("k", pa.int64()), ("x", pa.float64()), ("at", TIMESTAMP), ("_partition", pa.int32()), ("_offset", pa.int64())]
)
UPSERT = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("_deleted", pa.bool_()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)


def upserts(*rows: tuple[str | None, float | None], offset: int = 0) -> pa.Table:
    """(key, x); an x of None is a tombstone."""
    return pa.Table.from_pylist(
        [
            {
                "k": k,
                "x": x,
                "tags": None if x is None else [str(x)],
                "_deleted": x is None,
                "_partition": 1,
                "_offset": offset + n,
            }
            for n, (k, x) in enumerate(rows)
        ],
        UPSERT,
    )


def records(*rows: tuple[int, float, int], offset: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": k, "x": x, "at": at, "_partition": 0, "_offset": offset + n} for n, (k, x, at) in enumerate(rows)],
        STREAM,
    )


def said(answer: Any) -> list[tuple[Any, ...]]:
    names = [name for name in answer.rows.schema.names if name not in ("at", "tags")]
    return sorted((tuple(row[name] for name in names) for row in answer.rows.to_pylist()), key=repr)


class Bench:
    def __init__(self, operator: Latest) -> None:
        self.operator, self.state = operator, MemoryState()

    def push(self, changes: pa.Table, watermark: int | None = None) -> list[tuple[Any, ...]]:
        return said(self.operator.step(self.state, {0: changes}, watermark))


def test_an_upsert_replaces_the_row_of_its_key_and_a_tombstone_takes_it_away() -> None:
    bench = Bench(Latest(UPSERT, ("k",)))
    assert bench.push(upserts(("a", 1.0), ("b", 2.0), (None, 3.0))) == [("a", 1.0, 1), ("b", 2.0, 1), (None, 3.0, 1)]
    assert bench.push(upserts(("a", 5.0), ("b", None), ("c", None), offset=10)) == [
        ("a", 1.0, -1),
        ("a", 5.0, 1),
        ("b", 2.0, -1),
    ]
    assert bench.push(upserts(("b", 7.0), (None, None), offset=20)) == [("b", 7.0, 1), (None, 3.0, -1)]


def test_only_the_last_change_of_a_batch_counts_and_what_stays_says_nothing() -> None:
    bench = Bench(Latest(UPSERT, ("k",)))
    assert bench.push(upserts(("a", 1.0), ("a", None), ("a", 2.0))) == [("a", 2.0, 1)]
    assert bench.push(upserts(("a", 9.0), ("a", 2.0), offset=5)) == []
    assert bench.push(upserts(("a", 2.0), ("a", None), offset=9)) == [("a", 2.0, -1)]


def test_a_row_that_differs_in_a_sign_of_zero_is_another_and_nan_is_itself() -> None:
    bench = Bench(Latest(UPSERT, ("k",)))
    bench.push(upserts(("a", 0.0), ("b", math.nan)))
    assert str(bench.push(upserts(("a", -0.0), ("b", math.nan), offset=5))) == "[('a', -0.0, 1), ('a', 0.0, -1)]"


def test_the_last_in_the_log_is_the_newest_of_a_stream() -> None:
    bench = Bench(Latest(STREAM, ("k",)))
    assert bench.push(records((1, 1.0, 50), (1, 2.0, 40))) == [(1, 2.0, 1)]
    assert bench.push(records((1, 3.0, 10), offset=5)) == [(1, 2.0, -1), (1, 3.0, 1)]


def test_by_time_a_record_that_comes_late_does_not_displace_a_newer_one() -> None:
    bench = Bench(Latest(STREAM, ("k",), time="at", by="time"))
    assert bench.push(records((1, 1.0, 50), (1, 2.0, 40))) == [(1, 1.0, 1)]
    assert bench.push(records((1, 3.0, 49), offset=5)) == []
    assert bench.push(records((1, 4.0, 50), offset=6)) == [(1, 1.0, -1), (1, 4.0, 1)], "of equal times the last"


def many(rows: int, seed: int, offset: int) -> pa.Table:
    chance = random.Random(seed)
    values = [0.0, -0.0, 0.1, 0.1 + 0.2, math.nan]
    return records(
        *((chance.randrange(50), chance.choice(values), chance.randrange(9)) for _ in range(rows)), offset=offset
    )


@pytest.mark.parametrize("by", ["log", "time"])
def test_a_batch_that_runs_twice_gives_the_same_bytes_in_whichever_order_its_rows_come(by: Any) -> None:
    operator = Latest(STREAM, ("k",), time="at", by=by, retain=100)
    state = MemoryState()
    for number in range(6):
        batch = many(200, number, offset=1000 * number)
        shuffled = batch.take(np.random.default_rng(number).permutation(batch.num_rows))
        again = state.copy()
        one = operator.step(state, {0: batch}, number).rows
        two = operator.step(again, {0: shuffled}, number).rows
        assert one.equals(two, check_metadata=True) or str(one.to_pylist()) == str(two.to_pylist())  # NaN is not NaN
        assert state.held() == again.held()


def model(by: str, tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    best: dict[int, tuple[Any, ...]] = {}
    for row in [row for table in tables for row in table.to_pylist()]:
        rank = (row["at"] if by == "time" else 0, row["_partition"], row["_offset"])
        if row["k"] not in best or rank > best[row["k"]][0]:
            best[row["k"]] = (rank, row["x"])
    return sorted(((k, x) for k, (_, x) in best.items()), key=repr)


@pytest.mark.parametrize("by", ["log", "time"])
@pytest.mark.parametrize("bits", [64, 3])
def test_the_view_is_the_newest_of_each_key_also_where_keys_share_a_hash(
    by: Any, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = module.key_hash
    monkeypatch.setattr(module, "key_hash", lambda columns: real(columns) & np.uint64(2**bits - 1))
    bench = Bench(Latest(STREAM, ("k",), time="at", by=by))
    view: dict[str, int] = {}
    tables = []
    for number in range(8):
        tables.append(many(60, 100 + number, offset=1000 * number))
        for *row, weight in bench.push(tables[-1]):
            view[repr(tuple(row))] = view.get(repr(tuple(row)), 0) + weight
        assert sorted(row for row, weight in view.items() if weight) == [repr(row) for row in model(by, tables)]
        assert set(view.values()) <= {0, 1}


def test_a_key_that_is_deleted_and_comes_back_is_retained_from_then_on() -> None:
    schema = UPSERT.append(pa.field("at", TIMESTAMP))

    def timed(*rows: tuple[float | None, int | None], offset: int) -> pa.Table:
        table = upserts(*(("a", x) for x, _ in rows), offset=offset)
        return table.append_column("at", pa.array([at for _, at in rows], TIMESTAMP))

    together, apart = (Bench(Latest(schema, ("k",), time="at", retain=10)) for _ in range(2))
    history: list[tuple[float | None, int | None]] = [(1.0, 100), (None, None), (2.0, 95)]
    together.push(timed(*history, offset=0), 100)
    for number, change in enumerate(history):
        apart.push(timed(change, offset=number), 100)
    for bench in (together, apart):
        assert bench.push(timed(offset=9), 105) == []
        assert bench.push(timed(offset=9), 106) == [("a", 2.0, -1)]


def test_what_cannot_be_is_refused_with_the_column() -> None:
    with pytest.raises(BadSchema, match="no column '_offset' arrives"):
        Latest(STREAM.remove(4), ("k",))
    with pytest.raises(BadSchema, match="event time"):
        Latest(STREAM, ("k",), by="time")
    with pytest.raises(BadSchema, match="order, that of the log"):
        Latest(UPSERT.append(pa.field("at", TIMESTAMP)), ("k",), time="at", by="time")
