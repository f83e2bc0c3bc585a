"""Few rows brought together by numpy or Arrow, where DuckDB would take longer to begin than to answer.

Only what both answer alike: keys and numbers of types that have one notion of being equal, sums that cannot overflow.
Everything else is DuckDB's, whose words the caller has ready.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.process.duck import FEW
from headwater.process.keyed.summing import How, summed

_MOST = {64: 2**63 - 1, 128: 10**38 - 1}


def reduced(rows: pa.Table, keys: Sequence[str], how: Sequence[tuple[str, How]]) -> pa.Table | None:
    """A row for each of the keys' values that there are, with these columns combined; a sum over nothing is 0, the
    least or greatest of nothing is null. None if that is left to DuckDB."""
    if not keys or rows.num_rows > FEW or not all(_is_plain(rows.schema.field(key).type) for key in keys):
        return None
    few = summed(rows, keys, how)
    if few is not None:
        return few
    if not all(_fits(rows, name, combined) for name, combined in how):
        return None
    made = rows.group_by(list(keys), use_threads=False).aggregate([(name, combined) for name, combined in how])
    columns = {key: made[key] for key in keys}
    for name, combined in how:
        kind, column = rows.schema.field(name).type, made[f"{name}_{combined}"]
        if combined == "sum" and column.null_count:
            column = column.fill_null(pa.scalar(0).cast(column.type))
        columns[name] = column if column.type == kind else column.cast(kind)
    return pa.table(columns)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_binary(kind)
    )


def _fits(rows: pa.Table, name: str, how: How) -> bool:
    kind = rows.schema.field(name).type
    if how != "sum":
        return bool(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) or pa.types.is_timestamp(kind))
    if not (pa.types.is_int64(kind) or pa.types.is_decimal128(kind)):
        return False
    ends = pc.min_max(rows[name])
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None:
        return True
    scale = kind.scale if pa.types.is_decimal128(kind) else 0
    largest = math.ceil(max(abs(low), abs(high)) * 10**scale)
    return bool(largest * rows.num_rows <= _MOST[kind.bit_width] // 2)
