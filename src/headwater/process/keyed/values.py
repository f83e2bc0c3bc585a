"""Columns as lists of Python values, as `to_pylist` gives them, where it matters several times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_SECONDS = 10**6
_FIRST, _LAST = -62_135_596_800 * _SECONDS, 253_402_300_800 * _SECONDS  # what Python's datetime can hold


def python_columns(table: pa.Table) -> list[list[Any]]:
    return [_values(column.combine_chunks()) for column in table.columns]


def _values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):  # combining nothing leaves it chunked
        return []
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_boolean(kind):
        values = column.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False).tolist()
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    elif kind == pa.timestamp("us", "UTC"):
        numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
        if len(numbers) and (numbers.min() < _FIRST or numbers.max() >= _LAST):
            return list(column.to_pylist())
        import pandas as pd  # not for a process that only plans, which would start later

        values = pd.DatetimeIndex(numbers.view("datetime64[us]"), tz="UTC").to_pydatetime().tolist()
    else:
        return list(column.to_pylist())
    if column.null_count:
        for place in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[place] = None
    return list(values)
