"""What a record is: the user's typed columns, the metadata columns that begin with `_`; how Python values become one.

A table topic's records carry `_weight`: +1 a row is there, -1 a row is gone; the sum of weights is the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import BadRecord, BadSchema

WEIGHT = "_weight"
PARTITION, OFFSET, APPENDED_AT = "_partition", "_offset", "_appended_at"

TIMESTAMP = pa.timestamp("us", "UTC")

TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}

Columns: TypeAlias = Mapping[str, str] | pa.Schema
Rows: TypeAlias = Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema of a user's columns, given by type names or as an Arrow schema of those same types."""
    if isinstance(columns, pa.Schema):
        for field in columns:
            if field.type not in TYPES.values():
                raise BadSchema(what=f"column {field.name!r} has the type {field.type}", do=_known_types())
        schema = pa.schema([pa.field(field.name, field.type) for field in columns])
    else:
        unknown = {name: given for name, given in columns.items() if given not in TYPES}
        for name, given in unknown.items():
            raise BadSchema(what=f"column {name!r} has the type {given!r}", do=_known_types())
        schema = pa.schema([(name, TYPES[given]) for name, given in columns.items()])
    if not len(schema):
        raise BadSchema(what="a topic without columns", do="Give at least one column")
    for name in schema.names:
        if name.startswith("_"):
            raise BadSchema(what=f"column {name!r} begins with '_'", do="Such names are kept for metadata: rename it")
        if schema.names.count(name) > 1:
            raise BadSchema(what=f"column {name!r} stands twice", do="Rename one of them")
    return schema


def _known_types() -> str:
    return f"Types here: {', '.join(TYPES)}"


def stored_schema(schema: pa.Schema, *, weighted: bool) -> pa.Schema:
    """The columns as they rest in the log: the user's, and the weight of a table's rows."""
    return schema.append(pa.field(WEIGHT, pa.int64())) if weighted else schema


def to_batch(rows: Rows, stored: pa.Schema, *, topic: str, required: Sequence[str] = ()) -> pa.RecordBatch:
    """One record batch of exactly the stored schema, or `BadRecord` naming the row and column that do not fit.

    A missing column is null, a missing weight is +1; an unknown column is refused, and so is a null in `required`.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch):
        batch = _from_arrow(rows, stored, topic)
    else:
        batch = _from_dicts(rows, stored, topic)
    for name in required:
        column = batch.column(name)
        if column.null_count:
            row = int(pc.index(pc.is_null(column), True).as_py())
            raise BadRecord(topic=topic, row=row, column=name, why="null or missing in a key, time or weight column")
    if WEIGHT in stored.names and pc.any(pc.equal(batch.column(WEIGHT), 0)).as_py():
        row = int(pc.index(batch.column(WEIGHT), 0).as_py())
        raise BadRecord(topic=topic, row=row, column=WEIGHT, why="a weight of zero says nothing")
    return batch


def _from_arrow(rows: pa.Table | pa.RecordBatch, stored: pa.Schema, topic: str) -> pa.RecordBatch:
    _refuse_unknown(rows.schema.names, stored, topic, row=None)
    columns = []
    for field in stored:
        if field.name not in rows.schema.names:
            columns.append(_default(field, rows.num_rows))
            continue
        column = rows.column(field.name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise BadRecord(topic=topic, column=field.name, why=f"not {field.type}: {error}") from None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=stored)


def _from_dicts(rows: Sequence[Mapping[str, Any]], stored: pa.Schema, topic: str) -> pa.RecordBatch:
    names = set(stored.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadRecord(topic=topic, row=number, why=f"a record is a mapping, got {type(row).__name__}")
        if not names.issuperset(row):
            _refuse_unknown(list(row), stored, topic, row=number)
    columns = []
    for field in stored:
        values = [row.get(field.name) for row in rows]
        if field.name == WEIGHT:
            values = [1 if value is None else value for value in values]
        columns.append(_column(values, field, topic))
    return pa.RecordBatch.from_arrays(columns, schema=stored)


def _column(values: list[Any], field: pa.Field, topic: str) -> pa.Array:
    try:
        return _array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
        pass
    for row, value in enumerate(values):  # find the one that does not fit
        try:
            _array([value], field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError) as error:
            raise BadRecord(
                topic=topic, row=row, column=field.name, why=f"{_shown(value)} is not {field.type} ({error})"
            ) from None
    raise BadRecord(topic=topic, column=field.name, why=f"values do not fit {field.type} together")


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """As Arrow does it, less what Arrow lets pass: 1.5 as the integer 1, True as the number 1."""
    if pa.types.is_integer(kind) and any(isinstance(value, float) and not value.is_integer() for value in values):
        raise TypeError("not a whole number")
    if pa.types.is_boolean(kind) or not any(isinstance(value, bool | str) for value in values):
        return pa.array(values, kind)
    if any(isinstance(value, bool) for value in values):
        raise TypeError("a bool is not a number or text")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _times(values, kind)
    return pa.array(values, kind)


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Times as text (ISO 8601, as JSON has them) next to datetimes; text without a zone is UTC."""
    parsed: list[Any] = []
    for value in values:
        if isinstance(value, str):
            text = pa.array([value])
            try:
                parsed.append(text.cast(kind)[0].as_py())
            except pa.ArrowInvalid:
                if not pa.types.is_timestamp(kind):
                    raise
                parsed.append(text.cast(pa.timestamp(kind.unit)).cast(kind)[0].as_py())
        else:
            parsed.append(value)
    return pa.array(parsed, kind)


def _default(field: pa.Field, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(1, field.type), rows) if field.name == WEIGHT else pa.nulls(rows, field.type)


def _refuse_unknown(given: Sequence[str], stored: pa.Schema, topic: str, *, row: int | None) -> None:
    for name in given:
        if name not in stored.names:
            known = ", ".join(stored.names)
            raise BadRecord(topic=topic, row=row, column=str(name), why=f"no such column; the topic has {known}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
