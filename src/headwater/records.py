"""What a record is: the user's typed columns, the metadata columns that begin with `_`; how Python values become one.

A weighted table's records carry `_weight`: +1 a row is there, -1 a row is gone; the sum of weights is the table. An
upsert table's carry `_deleted`: true in a tombstone, which has only its key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import BadRecord, BadSchema
from headwater.typenames import PLAIN, TIMESTAMP, parse_type, supported

if TYPE_CHECKING:
    import pandas as pd

WEIGHT = "_weight"
DELETED = "_deleted"
PARTITION, OFFSET, APPENDED_AT = "_partition", "_offset", "_appended_at"
RECORD_BYTES = 64 * 1024 * 1024
"""The largest record; one that is larger is most likely a file that belongs elsewhere."""

Columns: TypeAlias = Mapping[str, str] | pa.Schema
Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch | pd.DataFrame | str | bytes"

__all__ = [
    "APPENDED_AT",
    "DELETED",
    "OFFSET",
    "PARTITION",
    "TIMESTAMP",
    "WEIGHT",
    "Columns",
    "Rows",
    "schema_of",
    "to_batch",
]


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema of a user's columns, given by type names or as an Arrow schema."""
    if isinstance(columns, pa.Schema):
        for field in columns:
            if not supported(field.type):
                raise BadSchema(what=f"column {field.name!r} has the type {field.type}", do=f"Types here: {PLAIN}")
        schema = pa.schema([pa.field(field.name, field.type) for field in columns])
    else:
        schema = pa.schema([(name, parse_type(given, column=name)) for name, given in columns.items()])
    if not len(schema):
        raise BadSchema(what="a topic without columns", do="Give at least one column")
    for name in schema.names:
        if name.startswith("_"):
            raise BadSchema(what=f"column {name!r} begins with '_'", do="Such names are kept for metadata: rename it")
        if schema.names.count(name) > 1:
            raise BadSchema(what=f"column {name!r} stands twice", do="Rename one of them")
    return schema


def is_key_type(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_decimal(kind)


def to_batch(rows: Rows, stored: pa.Schema, *, topic: str, required: Sequence[str] = ()) -> pa.RecordBatch:
    """One record batch of exactly the stored schema, or `BadRecord` naming the row and column that do not fit.

    Takes dicts, Arrow, pandas, or NDJSON as text or bytes. A missing column is null, a missing weight is +1; an unknown
    column is refused, and so is a null in `required`.
    """
    if isinstance(rows, str | bytes):
        rows = _from_lines(rows, topic)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        batch = _from_arrow(rows, stored, topic)
    elif hasattr(rows, "iloc"):
        batch = _from_arrow(_from_pandas(rows, topic), stored, topic)
    else:
        batch = _from_dicts(rows, stored, topic)
    for name in required:
        column = batch.column(name)
        if column.null_count:
            row = int(pc.index(pc.is_null(column), True).as_py())
            raise BadRecord(topic=topic, row=row, column=name, why="null or missing in a key, time or weight column")
    if WEIGHT in stored.names and not batch.column(WEIGHT).to_numpy().all():
        row = int(pc.index(batch.column(WEIGHT), 0).as_py())
        raise BadRecord(topic=topic, row=row, column=WEIGHT, why="a weight of zero says nothing")
    return batch


def refuse_large(batch: pa.RecordBatch, *, topic: str) -> None:
    """For whoever finds that records take more than `RECORD_BYTES`: is it one of them that does?"""
    for row in range(batch.num_rows if batch.num_rows < 1000 else 0):  # of many rows none is likely to be that large
        size = batch.slice(row, 1).nbytes
        if size > RECORD_BYTES:
            raise BadRecord(
                topic=topic,
                row=row,
                why=f"a record of {size // 2**20} MB; the most is {RECORD_BYTES // 2**20} MB",
                do="Put large content into a file or object store, and its address into the record",
            )


def _from_lines(text: str | bytes, topic: str) -> list[Mapping[str, Any]]:
    rows = []
    lines: list[Any] = text.splitlines()
    for number, line in enumerate(lines):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise BadRecord(topic=topic, row=number, why=f"the line is not JSON: {error}") from None
    return rows


def _from_pandas(frame: Any, topic: str) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadRecord(topic=topic, why=f"the frame has no Arrow form: {error}") from None


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
        if field.name in _DEFAULTS:
            values = [_DEFAULTS[field.name] if value is None else value for value in values]
        columns.append(_column(values, field, topic))
    return pa.RecordBatch.from_arrays(columns, schema=stored)


_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)
_DEFAULTS: dict[str, Any] = {WEIGHT: 1, DELETED: False}


def _column(values: list[Any], field: pa.Field, topic: str) -> pa.Array:
    try:
        return _array(values, field.type)
    except _UNFIT:
        pass
    for row, value in enumerate(values):  # find the one that does not fit
        try:
            _array([value], field.type)
        except _UNFIT as error:
            raise BadRecord(
                topic=topic, row=row, column=field.name, why=f"{_shown(value)} is not {field.type} ({error})"
            ) from None
    raise BadRecord(topic=topic, column=field.name, why=f"values do not fit {field.type} together")


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """As Arrow does it, less what Arrow lets pass: 1.5 as the integer 1, True as the number 1."""
    found = set(map(type, values))
    if float in found and pa.types.is_integer(kind) and not all(float(value or 0).is_integer() for value in values):
        raise TypeError("not a whole number")
    if bool in found and not pa.types.is_boolean(kind) and not pa.types.is_nested(kind):
        raise TypeError("a bool is not a number or text")
    if str in found and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return _times(values, kind)
    if pa.types.is_decimal(kind) and found & {str, int}:
        return pa.array([str(value) if isinstance(value, str | int) else value for value in values]).cast(kind)
    return pa.array(values, kind)


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Times as text (ISO 8601, as JSON has them) next to datetimes; text without a zone is UTC."""
    read = datetime.fromisoformat if pa.types.is_timestamp(kind) else date.fromisoformat
    return pa.array([read(value) if isinstance(value, str) else value for value in values], kind)


def _default(field: pa.Field, rows: int) -> pa.Array:
    if field.name in _DEFAULTS:
        return pa.repeat(pa.scalar(_DEFAULTS[field.name], field.type), rows)
    return pa.nulls(rows, field.type)


def _refuse_unknown(given: Sequence[str], stored: pa.Schema, topic: str, *, row: int | None) -> None:
    for name in given:
        if name not in stored.names:
            known = ", ".join(stored.names)
            raise BadRecord(topic=topic, row=row, column=str(name), why=f"no such column; the topic has {known}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
