"""An arrangement, however its chunks are merged, is the sum of what was added, or the newest row of each key."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.keyhash import key_hash
from headwater.process.keyed import bykey, chunk, merging
from headwater.process.keyed.arrangement import GONE, HASH, Arrangement, Manifest, Shape
from headwater.process.keyed.memory import MemoryState

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_weight", pa.int64())])
ROW_BYTES = 8 + 8 + 5 + 8
rows = st.lists(
    st.fixed_dictionaries(
        {"k": st.integers(0, 30), "v": st.sampled_from("abc"), "_weight": st.integers(-2, 3).filter(bool)}
    ),
    max_size=10,
)


def summed(table: pa.Table) -> Counter[tuple[int, str]]:
    total: Counter[tuple[int, str]] = Counter()
    for row in table.to_pylist():
        total[row["k"], row["v"]] += row["_weight"]
    return Counter({row: weight for row, weight in total.items() if weight})


@pytest.fixture(autouse=True, scope="module")
def tiny_chunks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "CHUNK_BYTES", 400)
        patch.setattr(merging, "SMALLEST_TIER_BYTES", 2000)
        patch.setattr(merging, "FANOUT", 3)
        patch.setattr(merging, "MERGE_BYTES", 3000)  # a chunk of some rows takes about 1000
        yield


def reopened(arranged: Arrangement, state: MemoryState) -> Arrangement:
    """Through what Spark remembers, and back."""
    told = json.dumps(arranged.manifest.to_json())
    return Arrangement(arranged.shape, state, Manifest.from_json(json.loads(told)))


def check_chunks(arranged: Arrangement, state: MemoryState) -> None:
    manifest = arranged.manifest
    for run in (*manifest.runs, *(run for merge in manifest.merges for run in (*merge.sources, merge.into))):
        assert all(a.high < b.low for a, b in pairwise(run)), "ranges of a run are disjoint"
    for merge in manifest.merges:
        reached = merge.into[-1].high if merge.into else -1
        assert all(reached < ref.low for run in merge.sources for ref in run), "what was merged is below what is left"
    assert manifest.ids == set(state.data), "no chunk is lost, none left behind"


@given(st.lists(rows, max_size=30), st.sets(st.integers(0, 30)), st.booleans())
def test_gathering_finds_exactly_the_rows_of_the_wanted_keys(
    batches: list[list[dict[str, object]]], wanted: set[int], compact: bool
) -> None:
    state = MemoryState()
    arranged = Arrangement(Shape(SCHEMA, ("k",), ("_weight",), compact), state)
    for batch in batches:
        arranged.add(pa.Table.from_pylist(batch, SCHEMA))
        arranged = reopened(arranged, state)
        check_chunks(arranged, state)
    hashes = np.unique(key_hash([pa.array(sorted(wanted), pa.int64())]))
    expected = summed(pa.Table.from_pylist([row for batch in batches for row in batch if row["k"] in wanted], SCHEMA))
    assert summed(arranged.gather(hashes)) == expected


def test_merging_cancels_what_came_and_went_and_bounds_the_runs() -> None:
    state = MemoryState()
    arranged = Arrangement(Shape(SCHEMA, ("k",), ("_weight",), compact=True), state)
    for number in range(300):
        arranged.add(pa.Table.from_pylist([{"k": number % 7, "v": "a", "_weight": 1 if number % 2 else -1}], SCHEMA))
    assert arranged.manifest.size.runs < 12
    assert arranged.manifest.size.rows < 40


# --- newest of a key ---

VERSIONED = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_version", pa.int64()), (GONE, pa.bool_())])
NEWEST = Shape(VERSIONED, ("k",), newest=("_version",))
updates = st.lists(st.dictionaries(st.integers(0, 12), st.sampled_from(["a", "b", None]), max_size=6), max_size=40)


@given(updates, st.integers(1, 2**64 - 1))
def test_the_newest_row_of_a_key_counts_also_where_keys_share_a_hash(
    batches: list[dict[int, str | None]], mask: int
) -> None:
    state = MemoryState()
    arranged = Arrangement(NEWEST, state)
    model: dict[int, str] = {}
    for version, batch in enumerate(batches):
        table = pa.Table.from_pylist(
            [{"k": k, "v": v, "_version": version, GONE: v is None} for k, v in batch.items()], VERSIONED
        )
        arranged.add(table, key_hash([table["k"]]) & np.uint64(mask))  # few bits: many keys share a hash
        arranged = reopened(arranged, state)
        check_chunks(arranged, state)
        for k, v in batch.items():
            model.pop(k, None)
            if v is not None:
                model[k] = v
    hashes = np.unique(key_hash([pa.array(range(13), pa.int64())]) & np.uint64(mask))
    found = arranged.newest(hashes)
    assert (np.diff(found[HASH].to_numpy().astype(object)) >= 0).all()
    live = {row["k"]: row["v"] for row in found.to_pylist() if not row[GONE]}
    assert live == model


def test_what_is_gone_is_forgotten_once_it_meets_what_it_speaks_of() -> None:
    state = MemoryState()
    arranged = Arrangement(NEWEST, state)
    for version in range(400):
        row = {"k": version // 2, "v": "a", "_version": version, GONE: bool(version % 2)}
        arranged.add(pa.Table.from_pylist([row], VERSIONED))
    assert arranged.manifest.size.rows < 20


# --- a queue ---


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=8), max_size=30), st.integers(0, 2**64 - 1))
def test_what_is_taken_from_a_queue_is_all_up_to_the_bound_once(batches: list[list[int]], jump: int) -> None:
    state = MemoryState()
    queue = Arrangement(Shape(pa.schema([("n", pa.uint64())]), ("n",)), state)
    waiting: list[int] = []
    for number, batch in enumerate(batches):
        if batch:
            numbers = np.array(batch, np.uint64)
            queue.add(pa.table({"n": numbers}), numbers)
        waiting += batch
        bound = jump * number % 2**64
        taken = queue.take_up_to(bound)["n"].to_pylist()
        assert sorted(taken) == sorted(n for n in waiting if n <= bound)
        waiting = [n for n in waiting if n > bound]
        queue = reopened(queue, state)
        check_chunks(queue, state)


# --- how much work ---


class Counting(MemoryState):
    """Counts what is written, and what is loaded beyond looking at it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def save(self, data: pa.Buffer, whole: chunk.Chunk) -> str:
        self.written += data.size
        return super().save(data, whole)


def test_the_work_of_a_batch_goes_with_its_size_not_with_that_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "CHUNK_BYTES", 8_000)
    monkeypatch.setattr(merging, "SMALLEST_TIER_BYTES", 1_000)
    monkeypatch.setattr(merging, "FANOUT", 4)
    monkeypatch.setattr(merging, "MERGE_BYTES", 16_000)
    state = Counting()
    arranged = Arrangement(Shape(SCHEMA, ("k",), ("_weight",), compact=True), state)
    chance = np.random.default_rng(5)
    total, worst, most_runs = 0, 0.0, 0
    for _ in range(600):
        count = int(chance.choice([5, 50, 800], p=[0.6, 0.35, 0.05]))
        keys = np.arange(total, total + count)
        total += count
        state.written = 0
        arranged.add(pa.table({"k": keys, "v": ["a"] * count, "_weight": [1] * count}))
        allowed = max(merging.MERGE_BYTES, merging.MERGE_FACTOR * count * ROW_BYTES)
        worst = max(worst, state.written / (count * ROW_BYTES + allowed))
        most_runs = max(most_runs, arranged.manifest.size.runs)
    size = arranged.manifest.size
    assert size.rows == total
    assert size.bytes > 20 * merging.MERGE_BYTES, "large enough for a whole merge to be more than a batch may do"
    assert worst < 2.0, "each chunk has a header of some hundred bytes; otherwise what is allowed is the limit"
    assert most_runs < 40


def test_a_merge_that_was_stopped_half_way_goes_on_to_the_same_chunks() -> None:
    state = MemoryState()
    shape = Shape(SCHEMA, ("k",), ("_weight",), compact=True)
    arranged = state.arrangement("a", shape)
    halfway = 0
    for number in range(120):
        batch = pa.table({"k": [number * 7 % 50, number], "v": ["a", "b"], "_weight": [1, 1]})
        again = state.copy()
        arranged.add(batch)
        again.arrangement("a", shape).add(batch)
        assert again.held() == state.held()
        halfway += bool(arranged.manifest.merges)
    assert halfway > 10, "merges were under way in many of the batches"


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(allow_nan=True) | st.none()), max_size=12), st.integers(0, 3))
def test_rows_are_brought_together_by_their_key_whatever_their_hash(
    given_keys: list[tuple[int, float | None]], mask: int
) -> None:
    table = pa.table({"a": pa.array([a for a, _ in given_keys], pa.int64()), "b": [b for _, b in given_keys]})
    table = table.set_column(1, "b", table["b"].cast(pa.float64()))
    hashes = key_hash([table["a"], table["b"]]) & np.uint64(mask) if given_keys else np.zeros(0, np.uint64)
    found = bykey.by_key(table, ("a", "b"), hashes, [np.arange(len(given_keys))])

    def same(a: int, b: int) -> bool:
        (x, p), (y, q) = given_keys[a], given_keys[b]
        return x == y and (p is None) == (q is None) and (p is None or p == q or (p != p and q != q))  # noqa: PLR0124

    groups = np.split(found.order, found.starts[1:]) if len(given_keys) else []
    assert sorted(int(row) for group in groups for row in group) == list(range(len(given_keys)))
    for group in groups:
        assert all(same(int(a), int(b)) and a < b for a, b in pairwise(group))
    firsts = [int(group[0]) for group in groups]
    assert not any(same(a, b) for at, a in enumerate(firsts) for b in firsts[at + 1 :])
