"""Schema evolution: columns may be added, types widened. Old chunks are never rewritten; they are read as the new."""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import SchemaRefused

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def evolved(topic: str, old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The schema that follows: the old columns in their order, wider where asked, then the added ones."""
    fields = []
    for field in old:
        if field.name not in new.names:
            raise SchemaRefused(topic=topic, column=field.name, why="a column cannot be removed")
        wanted = new.field(field.name).type
        if wanted != field.type and not widens(field.type, wanted):
            raise SchemaRefused(topic=topic, column=field.name, why=f"{field.type} cannot become {wanted}")
        fields.append(pa.field(field.name, wanted))
    fields += [pa.field(field.name, field.type) for field in new if field.name not in old.names]
    return pa.schema(fields)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the old type is a value of the new one."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    for family in (_INTEGERS, _UNSIGNED, [pa.float32(), pa.float64()]):
        if old in family and new in family:
            return family.index(new) > family.index(old)
    if old in _UNSIGNED and new in _INTEGERS:
        return _INTEGERS.index(new) > _UNSIGNED.index(old)
    if old in (*_INTEGERS[:3], *_UNSIGNED[:3]):
        return bool(new == pa.float64())
    return False


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Records of an older schema as the newer one has them: null where a column was not there yet."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
