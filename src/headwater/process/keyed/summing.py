"""Rows brought together by keys that are numbers, by numpy: in a third of the time that Arrow takes for few of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.process.keyed.fixed import Ints, Words, column_of, decimals, integers, words

How = Literal["sum", "min", "max"]

_MOST = (2**63 - 1) // 2


def summed(rows: pa.Table, keys: Sequence[str], how: Sequence[tuple[str, How]]) -> pa.Table | None:
    """As `reduced`, in the order of the keys; None where there are nulls in keys, or numbers that are not whole ones of
    64 bits."""
    found = [_key(rows.column(key)) for key in keys]
    ordered = [key for key in found if key is not None]
    if len(ordered) < len(found) or not rows.num_rows:
        return None
    order, starts = _together(ordered)
    firsts = order[starts]
    columns = {}
    for name, key in zip(keys, ordered, strict=True):
        columns[name] = _column(rows.schema.field(name).type, key[firsts])
    for name, combined in how:
        numbers = (_sums if combined == "sum" else _extremes)(rows.column(name), combined, order, starts)
        if numbers is None:
            return None
        columns[name] = numbers
    return pa.table(columns)


def _together(keys: list[Words]) -> tuple[Ints, Ints]:
    """An order that brings rows with the same keys together, and where each of them begins in it."""
    one = _as_one(keys)
    if one is not None:
        order = np.argsort(one)
        ordered = one[order]
        another = ordered[1:] != ordered[:-1]
    else:
        order = np.lexsort(keys[::-1])
        another = np.zeros(len(order) - 1, np.bool_)
        for key in keys:
            ordered = key[order]
            another |= ordered[1:] != ordered[:-1]
    return order, np.concatenate(([0], np.flatnonzero(another) + 1))


def _as_one(keys: list[Words]) -> Words | None:
    """One number for all keys of a row, if their ranges together fit into 64 bits: sorted several times as fast."""
    if len(keys) == 1:
        return keys[0]
    ends = [(int(key.min()), int(key.max())) for key in keys]
    if math.prod(high - low + 1 for low, high in ends) > _MOST:
        return None
    one = np.zeros(len(keys[0]), np.int64)
    for key, (low, high) in zip(keys, ends, strict=True):
        one *= high - low + 1
        wide = key if key.dtype == np.uint64 else key.astype(np.int64)
        one += (wide - wide.dtype.type(low)).astype(np.int64)
    return one


def _key(column: pa.ChunkedArray) -> Words | None:
    found = words(column)
    return found if found is None or found.dtype.kind in "iu" else integers(column)


def _sums(column: pa.ChunkedArray, _: How, order: Ints, starts: Ints) -> pa.Array | None:
    known = column.fill_null(pa.scalar(0).cast(column.type)) if column.null_count else column
    values = integers(known) if pa.types.is_int64(column.type) or pa.types.is_decimal(column.type) else None
    if values is None or max(abs(int(values.min())), abs(int(values.max()))) * len(values) > _MOST:
        return None
    return _column(column.type, np.add.reduceat(values[order], starts))


def _extremes(column: pa.ChunkedArray, how: How, order: Ints, starts: Ints) -> pa.Array | None:
    kind = column.type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind) or pa.types.is_timestamp(kind)):
        return None
    best: Any = np.minimum if how == "min" else np.maximum
    if not column.null_count:
        values = integers(column)
        return _column(kind, best.reduceat(values[order], starts)) if values is not None else None
    if pa.types.is_decimal(kind):
        return None
    known = column.is_valid().to_numpy()
    values = integers(column.fill_null(pa.scalar(0).cast(kind)))
    assert values is not None
    least = np.iinfo(values.dtype)
    values = np.where(known, values, least.max if how == "min" else least.min)
    found = pa.array(best.reduceat(values[order], starts), mask=~np.logical_or.reduceat(known[order], starts))
    return found.cast(kind)


def _column(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return decimals(kind, values) if pa.types.is_decimal(kind) else column_of(kind, values)
