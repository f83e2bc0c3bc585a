"""Values of a view as SQLite has them: numbers, text and bytes. What has no such form goes as JSON, and comes back.

Also whole rows as JSON, for stores and people that have nothing else.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from headwater.log.keyhash import key_hash


def affinity(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind):
        return "BLOB"
    return "TEXT" if pa.types.is_string(kind) or _as_text(kind) else "INTEGER"


def plain(column: Any) -> Any:
    """Times as microseconds, dates as days, large unsigned numbers as their bits, nested values as JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        return json_text(column)
    return column.view(pa.int64()) if pa.types.is_uint64(kind) else column


def json_text(column: Any) -> Any:
    texts = [None if value is None else json.dumps(_told(value)) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def typed(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else _read(json.loads(value), kind) for value in values], kind)
    return pa.array(values, pa.int64()).view(kind) if pa.types.is_uint64(kind) else pa.array(values, kind)


def told(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them: times in ISO 8601, bytes in base64, decimals and numbers that are none as text."""
    return [{name: _told(value) for name, value in row.items()} for row in rows.to_pylist()]


def untold(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows that `told` has told."""
    return pa.Table.from_pylist(
        [{field.name: _read(row[field.name], field.type) for field in schema} for row in rows], schema
    )


def row_numbers(rows: pa.Table) -> list[int]:
    """A number a row of plain values, by which a bag of rows is searched: equal rows have the same."""
    return [int(value) - (1 << 63) for value in key_hash(rows.columns)]


def _as_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_nested(kind))


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_told(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime | date) else value if _json(value) else str(value)


def _json(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _read(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_read(name, kind.key_type), _read(each, kind.item_type)) for name, each in value]
    if pa.types.is_struct(kind):
        return {field.name: _read(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [_read(each, kind.value_type) for each in value]
    return _read_plain(value, kind)


def _read_plain(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind):
        return int(value)
    return pa.scalar(value).cast(kind).as_py() if pa.types.is_decimal(kind) else value
