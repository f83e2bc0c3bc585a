"""Which partition a row goes to, and rows apart by it: the one place that decides it for every append.

A row with a key goes by the hash of it; rows without a key stay together and take turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.keyhash import grouped, hash_one, key_hash, spread

Numbers = npt.NDArray[np.int64]


def one_way(batch: pa.RecordBatch, key: tuple[str, ...], ways: int, *, turn: int) -> int | None:
    """Where all of the rows go together, found without looking at each: a single row, say. None if that is not so."""
    if not key or ways == 1:
        return turn % ways
    if batch.num_rows == 1:
        one = hash_one([batch.column(name)[0].as_py() for name in key])
        if one is not None:
            return (one >> 32) % ways
    return None


def ways_of(batch: pa.RecordBatch, key: tuple[str, ...], ways: int) -> Numbers:
    """Where each row goes."""
    return spread(key_hash([batch.column(name) for name in key]), ways)


def apart(batch: pa.RecordBatch, numbers: Numbers, ways: int) -> Iterator[tuple[int, pa.RecordBatch, Numbers]]:
    """Each way that has rows, with them in their order, and with their places in the batch."""
    order, bounds = grouped(numbers, ways)
    ordered = batch.take(pa.array(order))
    for way in range(ways):
        low, high = int(bounds[way]), int(bounds[way + 1])
        if high > low:
            yield way, ordered.slice(low, high - low), order[low:high]


def split(batch: pa.RecordBatch, key: tuple[str, ...], ways: int, *, turn: int = 0) -> dict[int, pa.RecordBatch]:
    if batch.num_rows == 0:
        return {}
    way = one_way(batch, key, ways, turn=turn)
    if way is not None:
        return {way: batch}
    return {number: rows for number, rows, _ in apart(batch, ways_of(batch, key, ways), ways)}
