from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.process.keyed import parcels
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


def test_rows_in_a_file_come_back_and_their_words_sort_by_place(tmp_path: Path) -> None:
    tables = [pa.table({"v": [str(n)] * 3}) for n in range(12)]
    words = [parcels.put_away(tmp_path / parcels.FOLDER, rows, f"task {n:04}") for n, rows in enumerate(tables)]
    assert sorted(words, reverse=True) == words[::-1]
    assert unpack(words).equals(pa.concat_tables(tables))
    assert unpack([pack(tables[0]), words[1]]).num_rows == 6
    kept = unpack(words[:1])
    parcels.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert kept.equals(tables[0]), "what is mapped stays as long as somebody has it"
