"""State of buckets as one, and as shares of one: whichever way it goes, in the middle of merges too, no row is lost."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from headwater.log.keyhash import distinct
from headwater.process.keyed import chunk, merging
from headwater.process.keyed.arrangement import Arrangement, Manifest, Shape
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.packing import by_key
from headwater.process.keyed.spreading import bounds, bucket_of, lies_within, united, within

ROWS = pa.schema([("k", pa.int64()), ("_weight", pa.int64())])
SHAPE = Shape(ROWS, ("k",), ("_weight",), compact=True)


@pytest.mark.parametrize("buckets", [1, 2, 3, 4, 7])
def test_every_hash_is_in_the_bucket_within_whose_bounds_it_lies(buckets: int) -> None:
    ends = [bounds(bucket, buckets) for bucket in range(buckets)]
    assert ends[0][0] == 0
    assert ends[-1][1] == 2**64 - 1
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(ends))
    some = [hash for low, high in ends for hash in (low, high)]
    found = bucket_of(np.array(some, np.uint64), buckets).tolist()
    assert found == [bucket for bucket in range(buckets) for _ in range(2)]


@pytest.mark.parametrize("seed", range(6))
def test_rows_stay_through_every_change_of_form(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(merging, "MERGE_BYTES", 3_000)
    monkeypatch.setattr(merging, "MERGE_FACTOR", 1)
    monkeypatch.setattr(merging, "SMALLEST_TIER_BYTES", 1_500)
    chance = random.Random(seed)
    buckets = chance.choice([2, 3, 4])
    store = MemoryState({})
    whole, model = Manifest(), Counter[int]()
    halfway = 0
    for _ in range(60):
        rows = some(chance, model)
        if chance.random() < 0.5:
            arranged = Arrangement(SHAPE, store, whole)
            arranged.add(rows)
            whole = arranged.manifest
        else:
            shares = [Arrangement(SHAPE, store, within(whole, bucket, buckets, store)) for bucket in range(buckets)]
            for bucket, own in by_key(rows, ("k",), buckets):
                shares[bucket].add(own)
            assert all(lies_within(share.manifest, bucket, buckets) for bucket, share in enumerate(shares))
            assert found(*shares) == present(model)
            whole = united([share.manifest for share in shares])
        halfway += bool(whole.merges)
        assert found(Arrangement(SHAPE, store, whole)) == present(model)
    assert halfway > 5, "forms changed in the middle of merges"


def some(chance: random.Random, model: Counter[int]) -> pa.Table:
    keys = [chance.randrange(400) for _ in range(chance.randrange(1, 60))]
    weights = [chance.choice([1, 1, -1]) if model[key] > 0 else 1 for key in keys]
    for key, weight in zip(keys, weights, strict=True):
        model[key] += weight
    return pa.table({"k": keys, "_weight": weights}, schema=ROWS)


def found(*arranged: Arrangement) -> Counter[int]:
    every = distinct(hashes_of(pa.table({"k": pa.array(range(400), pa.int64())}), ("k",)))
    total = Counter[int]()
    for row in (row for each in arranged for row in each.gather(every).to_pylist()):
        total[row["k"]] += row["_weight"]
    return present(total)


def present(model: Counter[int]) -> Counter[int]:
    return Counter({key: count for key, count in model.items() if count})
