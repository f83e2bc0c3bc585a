"""What distinct counts come to, against a plain model, also where many values share a hash."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.process.keyed import counting
from headwater.process.keyed.combining import HASH, Shape
from headwater.process.keyed.counting import VALUE, Counted, counted, value_hashes
from tests.property.changes import bag

SCHEMA = pa.schema([("g", pa.string()), (VALUE, pa.list_(pa.int64())), ("all", pa.int64()), ("some", pa.int64())])
MASK = np.uint64(0x0000_0003_0000_0001)

VALUES = st.tuples(
    st.sampled_from(["a", "b", None]), st.sampled_from([[0], [1], [1, None], [], None]), st.integers(-1, 2)
)


def rows(given_rows: list[tuple[Any, Any, int]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"g": g, VALUE: v, "all": n, "some": n * (g == "a")} for g, v, n in given_rows], SCHEMA
    )


def come(came: pa.Table, before: pa.Table, mask: np.uint64) -> Counted:
    known = before.add_column(0, HASH, pa.array(value_hashes(before, ("g",)) & mask))
    return counted(came, value_hashes(came, ("g",)) & mask, known, ("g",), ("all", "some"))


def key(row: dict[str, Any]) -> tuple[Any, str]:
    return row["g"], repr(row[VALUE])


def totals(table: pa.Table, name: str) -> Counter[tuple[Any, str]]:
    found: Counter[tuple[Any, str]] = Counter()
    for row in table.to_pylist():
        found[key(row)] += row[name]
    return found


@given(st.lists(VALUES, max_size=10), st.lists(VALUES, max_size=10), st.sampled_from([MASK, np.uint64(2**64 - 1)]))
def test_a_value_counts_while_some_row_has_it(
    before: list[tuple[Any, Any, int]], came: list[tuple[Any, Any, int]], mask: np.uint64
) -> None:
    known, more = rows(before), rows(came)
    touched = set(map(key, more.to_pylist()))
    known = known.filter(pa.array([key(row) in touched for row in known.to_pylist()], pa.bool_()))
    told = come(more, known, mask)
    for name in ("all", "some"):
        was, comes = totals(known, name), totals(more, name)
        assert totals(told.changed, name) == {k: n for k, n in comes.items() if k in totals(told.changed, name)}
        moved: Counter[Any] = Counter()
        for each, number in comes.items():
            moved[each[0]] += (was[each] + number > 0) - (was[each] > 0)
        answer: Counter[Any] = Counter()
        for row in told.moved.to_pylist():
            answer[row["g"]] += row[name]
        assert {g: n for g, n in answer.items() if n} == {g: n for g, n in moved.items() if n}
    changed = [key(row) for row in told.changed.to_pylist()]
    assert len(set(changed)) == len(changed), "each value once"
    left = {each for name in ("all", "some") for each, number in totals(more, name).items() if number}
    assert set(changed) == left, "what has not changed is not kept"
    assert (told.hashes[1:] >= told.hashes[:-1]).all()
    assert (value_hashes(told.changed, ("g",)) & mask == told.hashes).all()
    assert [key(row) in totals(known, "all") for row in told.changed.to_pylist()] == [not new for new in told.began]


def test_groups_with_one_hash_are_told_apart() -> None:
    one = np.uint64(1)
    told = come(rows([("a", [1], 1), ("b", [2], 1), ("a", [3], 1), (None, [1], 1)]), rows([]), one)
    assert bag(told.moved) == bag(pa.table({"g": ["a", "b", None], "all": [2, 1, 1], "some": [2, 0, 0]}))


def test_groups_with_hashes_of_their_own_are_not_grouped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(counting.duck, "run")
    table = pa.table({"g": ["a", "b", "a"], VALUE: ["x", "x", "y"], "all": [1, 1, 1]})
    known = table.slice(0, 0).add_column(0, HASH, pa.array([], pa.uint64()))
    told = counted(table, value_hashes(table, ("g",)), known, ("g",), ("all",))
    assert bag(told.moved) == [("a", 2), ("b", 1)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-1, 1)), max_size=20))
def test_what_the_key_tells_apart_is_summed_by_it(given_rows: list[tuple[str, int, int]]) -> None:
    shape = Shape(
        pa.schema([("a", pa.string()), ("b", pa.int64()), ("n", pa.int64())]), ("a", "b"), ("n",), compact=True
    )
    plain = pa.table({"a": [a for a, _, _ in given_rows], "b": [b for _, b, _ in given_rows]})
    table = pa.table(
        {
            HASH: pa.array([b % 2 for _, b, _ in given_rows], pa.uint64()),
            "a": plain["a"].cast(pa.string()),
            "b": plain["b"].cast(pa.int64()),
            "n": pa.array([n for _, _, n in given_rows], pa.int64()),
        }
    )
    model: Counter[tuple[str, int]] = Counter()
    for a, b, n in given_rows:
        model[a, b] += n
    left = shape.combined(table, lambda hashes: np.zeros(len(hashes), np.bool_))
    assert bag(left.select(["a", "b", "n"])) == sorted(((a, b, n) for (a, b), n in model.items() if n), key=repr)
    assert left[HASH].to_pylist() == sorted(left[HASH].to_pylist())
