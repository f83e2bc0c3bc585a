"""Retention is a function of the log: wherever batches end, the view is the model's over the same prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.process.keyed import chunk, merging
from headwater.process.keyed.fold import Fold
from headwater.process.keyed.latest import Latest
from headwater.process.keyed.operator import Operator
from headwater.process.plan import CHANGES, Node, Plan, Read, Send
from headwater.testing import PlanBench
from headwater.typenames import TIMESTAMP

RETAIN = 20
TOPIC = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("at", TIMESTAMP)])
ARRIVING = pa.schema([*TOPIC, ("_partition", pa.int32()), ("_offset", pa.int64())])
STATE = pa.schema([("n", pa.int64()), ("total", pa.float64())])


@pytest.fixture(autouse=True, scope="module")
def tiny_chunks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "CHUNK_BYTES", 600)
        patch.setattr(merging, "SMALLEST_TIER_BYTES", 2000)
        patch.setattr(merging, "FANOUT", 3)
        patch.setattr(merging, "MERGE_BYTES", 4000)
        yield


@dataclass(frozen=True)
class Record:
    k: int
    x: float
    at: int
    partition: int
    offset: int


Step = tuple[int, int, float]


def as_log(steps: list[Step], partitions: int) -> list[Record]:
    """Records whose times wander, without those that are late by more than `RETAIN`: the source puts those aside."""
    log: list[Record] = []
    now, greatest = 1000, dict.fromkeys(range(partitions), 0)
    for k, wander, x in steps:
        now += wander
        partition = k % partitions
        if now >= greatest[partition] - RETAIN:
            greatest[partition] = max(greatest[partition], now)
            log.append(Record(k, x, now, partition, len(log)))
    return log


def watermark(prefix: list[Record], partitions: int) -> int | None:
    """How far all partitions have come."""
    greatest = [max((r.at for r in prefix if r.partition == p), default=None) for p in range(partitions)]
    return None if None in greatest else min(greatest)  # type: ignore[type-var]


def add(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    if record["x"] == 7.0:
        raise ValueError("seven")
    return {"n": state["n"] + 1, "total": state["total"] + record["x"]}


def add_table(state: dict[str, Any], records: pa.Table) -> dict[str, Any]:
    for record in records.to_pylist():
        state = {"n": state["n"] + 1, "total": state["total"] + record["x"]}
    return state


def fold_model(prefix: list[Record], mark: int | None, *, fails: bool) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[int, float, int]] = {}
    for record in prefix:
        if fails and record.x == 7.0:
            continue
        n, total, newest = found.get(record.k, (0, 0.0, record.at))
        if record.at > newest + RETAIN:
            n, total, newest = 0, 0.0, record.at
        found[record.k] = (n + 1, total + record.x, max(newest, record.at))
    return {k: (n, total) for k, (n, total, newest) in found.items() if mark is None or newest >= mark - RETAIN}


def latest_model(prefix: list[Record], mark: int | None, *, by_time: bool) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, float, int]] = {}
    for record in prefix:
        rank = (record.at, record.offset) if by_time else (record.offset,)
        known = found.get(record.k)
        newest = max(record.at, known[2]) if known else record.at
        best, x = (known[0], known[1]) if known and known[0] > rank else (rank, record.x)
        found[record.k] = (best, x, newest)
    return {k: (x,) for k, (_, x, newest) in found.items() if mark is None or newest >= mark - RETAIN}


Model = Callable[[list[Record], int | None], dict[int, tuple[Any, ...]]]
KINDS: dict[str, tuple[Operator, str, Model]] = {
    "latest by log": (
        Latest(ARRIVING, ("k",), time="at", retain=RETAIN),
        "k, x",
        lambda prefix, mark: latest_model(prefix, mark, by_time=False),
    ),
    "latest by time": (
        Latest(ARRIVING, ("k",), time="at", by="time", retain=RETAIN),
        "k, x",
        lambda prefix, mark: latest_model(prefix, mark, by_time=True),
    ),
    "fold": (
        Fold(ARRIVING, ("k",), STATE, {"n": 0, "total": 0.0}, add, on_error="dead", time="at", retain=RETAIN),
        "k, n, total",
        lambda prefix, mark: fold_model(prefix, mark, fails=True),
    ),
    "fold tables": (
        Fold(ARRIVING, ("k",), STATE, {"n": 0, "total": 0.0}, add_table, by="arrow", time="at", retain=RETAIN),
        "k, n, total",
        lambda prefix, mark: fold_model(prefix, mark, fails=False),
    ),
}


def bench(operator: Operator, columns: str) -> PlanBench:
    sql = f'SELECT k, x, "at", _partition, _offset FROM {CHANGES}'
    read = Read("facts", tuple(TOPIC.names), (Send(sql, ("k",), node=0),), metadata=True)
    node = Node(operator, 0, (Send(f"SELECT {columns}, _weight FROM {CHANGES}", ("k",)),))
    kinds = {"k": pa.int64(), "n": pa.int64(), "x": pa.float64(), "total": pa.float64()}
    schema = pa.schema([(name, kinds[name]) for name in columns.split(", ")])
    return PlanBench(Plan("v", "", (read,), (node,), schema, ("k",), buckets=2))


def arriving(records: list[Record]) -> pa.Table:
    rows = [{"k": r.k, "x": r.x, "at": r.at, "_partition": r.partition, "_offset": r.offset} for r in records]
    return pa.Table.from_pylist(rows, ARRIVING)


def shown(tested: PlanBench) -> dict[int, tuple[Any, ...]]:
    rows = tested.view().to_pylist()
    assert all(row["_weight"] == 1 for row in rows)
    found = {row["k"]: tuple(value for name, value in row.items() if name not in ("k", "_weight")) for row in rows}
    assert len(found) == len(rows), "a key has one row"
    return found


steps = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-18, 30) | st.just(0), st.sampled_from([1.0, 0.1, 0.25, 7.0])),
    max_size=40,
)


@pytest.mark.parametrize("kind", KINDS)
@given(steps, st.lists(st.integers(0, 40), max_size=12), st.integers(1, 2))
def test_wherever_batches_end_the_view_is_the_models_over_the_prefix(
    kind: str, given_steps: list[Step], cuts: list[int], partitions: int
) -> None:
    operator, columns, model = KINDS[kind]
    log, tested = as_log(given_steps, partitions), bench(operator, columns)
    ends = sorted({min(cut, len(log)) for cut in cuts} | {len(log)})
    start = 0
    for end in ends:
        mark = watermark(log[:end], partitions)
        emitted = tested.push({"facts": arriving(log[start:end])}, mark)
        assert tested.again().equals(emitted), "a batch that runs twice must say the same"
        assert shown(tested) == model(log[:end], mark)
        start = end


@pytest.mark.parametrize("kind", KINDS)
def test_when_time_goes_on_without_records_all_leave_and_nothing_is_left_behind(kind: str) -> None:
    operator, columns, model = KINDS[kind]
    log = [Record(n % 50, 1.0, 1000 + n, 0, n) for n in range(200)]
    tested = bench(operator, columns)
    for start in range(0, 200, 20):
        tested.push({"facts": arriving(log[start : start + 20])}, watermark(log[: start + 20], 1))
    for mark in range(1200, 1260):
        tested.push({}, mark)
        assert shown(tested) == model(log, mark)
    assert shown(tested) == {}
    for bucket in range(2):
        state = tested.state(0, bucket)
        assert state.arrangements["0 expiry"].manifest.size.rows == 0, "no key is waited for"


def test_the_work_of_an_expiry_goes_with_what_expires_not_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.process.keyed.arrangement import Arrangement

    looked: list[int] = []
    real = Arrangement.newest
    monkeypatch.setattr(Arrangement, "newest", lambda self, wanted: (looked.append(len(wanted)), real(self, wanted))[1])
    operator, columns, _ = KINDS["latest by log"]
    tested = bench(replace(operator, retain=1000), columns)  # type: ignore[type-var]
    tested.push({"facts": arriving([Record(n, 1.0, 10_000 + n, 0, n) for n in range(2000)])}, 10_000)
    for mark in range(11_001, 11_021):
        looked.clear()
        tested.push({}, mark)
        assert sum(looked) == 1, "one key leaves, one is looked at"


def test_the_rule_catches_a_fold_that_drops_its_state_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is late by less than `retain` would find its key's state gone, if batches happened to end so."""
    operator, columns, model = KINDS["fold"]
    log = [Record(1, 1.0, 1000, 0, 0), Record(2, 1.0, 1021, 0, 1), Record(1, 1.0, 1005, 0, 2)]
    for drops_early, agrees in ((False, True), (True, False)):
        if drops_early:
            from headwater.process.keyed import fold

            monkeypatch.setattr(fold, "_past", lambda newest, span, mark: newest + RETAIN < mark)
        tested = bench(operator, columns)
        for number, record in enumerate(log):
            tested.push({"facts": arriving([record])}, watermark(log[: number + 1], 1))
        assert (shown(tested) == model(log, watermark(log, 1))) is agrees
