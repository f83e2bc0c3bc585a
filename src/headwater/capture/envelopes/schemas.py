"""Rows as Debezium has them in JSON, and the schemas that Kafka Connect's JSON can have beside them.

Moments are ISO 8601 texts (ZonedTimestamp), days are counted from 1970 (Date), decimals are texts, bytes are base64.
"""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.log.spec import TopicSpec

EPOCH_DAY = date(1970, 1, 1).toordinal()
NAMED: dict[pa.DataType, tuple[str, str | None]] = {
    pa.bool_(): ("boolean", None),
    pa.int8(): ("int8", None),
    pa.int16(): ("int16", None),
    pa.int32(): ("int32", None),
    pa.int64(): ("int64", None),
    pa.uint8(): ("int16", None),
    pa.uint16(): ("int32", None),
    pa.uint32(): ("int64", None),
    pa.uint64(): ("int64", None),
    pa.float32(): ("float", None),
    pa.float64(): ("double", None),
    pa.binary(): ("bytes", None),
    pa.date32(): ("int32", "io.debezium.time.Date"),
    pa.timestamp("us", "UTC"): ("string", "io.debezium.time.ZonedTimestamp"),
}
SOURCE = {
    **dict.fromkeys(("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table"), "string"),
    **dict.fromkeys(("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin", "partition", "offset"), "int64"),
}
TRANSACTION = {"id": "string", "total_order": "int64", "data_collection_order": "int64"}


def plain_row(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {name: _plain(value, schema.field(name).type) for name, value in row.items()}


def _plain(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind) and value is not None:
        return {str(_plain(key, kind.key_type)): _plain(item, kind.item_type) for key, item in value}
    if isinstance(value, list):
        return [_plain(each, kind.value_type) for each in value]
    if isinstance(value, dict):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.toordinal() - EPOCH_DAY
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def key_schema(spec: TopicSpec) -> dict[str, Any]:
    fields = [_field(name, spec.schema.field(name).type, optional=False) for name in spec.key]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{spec.name}.Key"}


def value_schema(spec: TopicSpec) -> dict[str, Any]:
    columns = [_field(field.name, field.type, optional=field.name not in spec.key) for field in spec.schema]
    row = {"type": "struct", "fields": columns, "optional": True, "name": f"{spec.name}.Value"}
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**_struct(SOURCE), "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        *({"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")),
        {**_struct(TRANSACTION), "optional": True, "field": "transaction"},
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{spec.name}.Envelope", "version": 2}


def _struct(columns: dict[str, str]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"type": t, "optional": True, "field": name} for name, t in columns.items()]}


def _field(name: str, kind: pa.DataType, *, optional: bool) -> dict[str, Any]:
    return {**_type(kind), "optional": optional, "field": name}


def _type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {"type": "array", "items": {**_type(kind.value_type), "optional": True}}
    if pa.types.is_map(kind):
        items = {**_type(kind.item_type), "optional": True}
        return {"type": "map", "keys": {"type": "string", "optional": False}, "values": items}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(field.name, field.type, optional=True) for field in kind]}
    type_, name = NAMED.get(kind, ("string", None))
    return {"type": type_, **({"name": name, "version": 1} if name else {})}
