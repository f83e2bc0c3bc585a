from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.keyhash import hash_one, key_hash, spread


@given(st.lists(st.text() | st.none()), st.integers(0, 3))
def test_equal_values_hash_alike_wherever_they_stand(values: list[str | None], skip: int) -> None:
    whole = key_hash([pa.array(values, pa.string())])
    sliced = key_hash([pa.array([None, "padding", "x", *values], pa.string()).slice(3)])
    chunked = key_hash([pa.chunked_array([pa.array(values[:skip], pa.string()), pa.array(values[skip:], pa.string())])])
    assert (whole == sliced).all()
    assert (whole == chunked).all()
    for value in set(values):
        assert len({int(h) for v, h in zip(values, whole, strict=True) if v == value}) == 1


@given(st.lists(st.text(), unique=True, max_size=200))
def test_different_texts_hash_differently(values: list[str]) -> None:
    assert len(np.unique(key_hash([pa.array(values, pa.string())]))) == len(values)


def test_integers_of_any_width_meet() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
    assert len({tuple(key_hash([pa.array([0, 1, 100], kind)]).tolist()) for kind in kinds}) == 1


def test_zero_has_no_sign_and_nan_is_one_value() -> None:
    hashes = key_hash([pa.array([0.0, -0.0, float("nan"), -float("nan")])])
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]


def test_the_order_of_columns_counts() -> None:
    a, b = pa.array([1]), pa.array([2])
    assert key_hash([a, b]) != key_hash([b, a])


def test_keys_spread_evenly() -> None:
    for keys in (pa.array(range(100_000)), pa.array([f"user-{n}" for n in range(100_000)])):
        sizes = np.bincount(spread(key_hash([keys]), 7), minlength=7)
        assert sizes.min() > 0.97 * 100_000 / 7


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([42]), 13679457532755275413),  # as splitmix64 is published
        (pa.array(["headwater"]), 1510840064715495627),
        (pa.array([None], pa.string()), 7640891576956012809),
        (
            pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")),
            7785602733310692296,
        ),
    ],
)
def test_the_hash_never_changes(column: pa.Array, expected: int) -> None:
    """Partitions of written topics depend on these numbers: a change needs a new keyhash.VERSION."""
    assert int(key_hash([column])[0]) == expected


keys = st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(max_size=40), min_size=1, max_size=3)


@given(keys)
def test_one_key_hashes_as_a_column_of_it_does(values: list[int | str]) -> None:
    assert hash_one(values) == int(key_hash([pa.array([value]) for value in values])[0])
