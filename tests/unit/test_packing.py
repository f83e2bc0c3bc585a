from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.process.keyed.packing import bucket_labels, by_key, pack, unpack


def test_packed_rows_come_back_and_a_key_stays_in_its_bucket() -> None:
    table = pa.table({"k": [n % 50 for n in range(1000)], "v": [str(n) for n in range(1000)]})
    packed = {way: pack(rows) for way, rows in by_key(table, ("k",), 4)}
    assert sorted(unpack(packed.values())["v"].to_pylist()) == sorted(table["v"].to_pylist())
    keys = [set(unpack([blob])["k"].to_pylist()) for blob in packed.values()]
    assert sum(len(each) for each in keys) == 50


def test_nothing_packs_to_nothing() -> None:
    assert list(by_key(pa.table({"k": pa.array([], pa.int64())}), ("k",), 4)) == []


@pytest.mark.parametrize("buckets", [1, 2, 4, 8, 16])
def test_labels_are_distinct(buckets: int) -> None:
    assert len(set(bucket_labels(buckets))) == buckets
