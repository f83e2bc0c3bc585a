"""An arrangement, however its chunks are merged, is the sum of what was added."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.keyhash import key_hash
from headwater.process.keyed import arrangement
from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.memory import MemoryState

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_weight", pa.int64())])
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
        patch.setattr(arrangement, "CHUNK_BYTES", 400)
        patch.setattr(arrangement, "SMALLEST_TIER_BYTES", 2000)
        patch.setattr(arrangement, "FANOUT", 3)
        yield


@given(st.lists(rows, max_size=30), st.sets(st.integers(0, 30)), st.booleans())
def test_gathering_finds_exactly_the_rows_of_the_wanted_keys(
    batches: list[list[dict[str, object]]], wanted: set[int], compact: bool
) -> None:
    state = MemoryState()
    arranged = Arrangement(Shape(SCHEMA, ("k",), ("_weight",), compact), state)
    for batch in batches:
        arranged.add(pa.Table.from_pylist(batch, SCHEMA))
        arranged = Arrangement.of(arranged.shape, state, arranged.manifest())  # through what Spark remembers, and back
    hashes = np.unique(key_hash([pa.array(sorted(wanted), pa.int64())]))
    expected = summed(pa.Table.from_pylist([row for batch in batches for row in batch if row["k"] in wanted], SCHEMA))
    assert summed(arranged.gather(hashes)) == expected
    for run in arranged.runs:
        assert all(a.high < b.low for a, b in pairwise(run)), "ranges of a run are disjoint"
    assert {ref.id for run in arranged.runs for ref in run} == set(state.data), "no chunk is lost, none left behind"


def test_merging_cancels_what_came_and_went_and_bounds_the_runs() -> None:
    state = MemoryState()
    arranged = Arrangement(Shape(SCHEMA, ("k",), ("_weight",), compact=True), state)
    for number in range(300):
        arranged.add(pa.Table.from_pylist([{"k": number % 7, "v": "a", "_weight": 1 if number % 2 else -1}], SCHEMA))
    assert len(arranged.runs) < 12
    assert sum(ref.rows for run in arranged.runs for ref in run) < 40
