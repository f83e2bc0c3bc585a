"""Our types and Spark's: the one place where a schema of ours becomes a schema of Spark's, and back.

Every column may be null on Spark's side, because it may be in a topic. Spark has no unsigned numbers: they travel as
the next wider signed type, `uint64` as `decimal(20,0)`. So `arrow_schema(spark_schema(ours))` is the schema in which
records travel to Spark; it is `ours` wherever no column is unsigned.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import types as spark

from headwater.errors import BadSchema
from headwater.typenames import PLAIN, TIMESTAMP

_PLAIN: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    TIMESTAMP: spark.TimestampType(),
}
_UNSIGNED: dict[pa.DataType, spark.DataType] = {
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
}
_BACK = {type(theirs): ours for ours, theirs in _PLAIN.items()}


def spark_schema(arrow_schema: pa.Schema) -> spark.StructType:
    """Spark's schema for records of this one, or `BadSchema` naming the column that has no place there."""
    _refuse_twice(arrow_schema.names, inside="")
    return spark.StructType([spark.StructField(f.name, _to_spark(f.type, f.name)) for f in arrow_schema])


def arrow_schema(struct_type: spark.StructType) -> pa.Schema:
    """Our schema for rows of this one: times in microseconds and UTC, no large types, no flags of nullability.

    `BadSchema` names a column whose type a topic cannot have (an interval, a variant, a time without a zone, a bare
    NULL) and a column that stands twice, as it does after a join of frames that share names.
    """
    _refuse_twice(struct_type.names, inside="")
    return pa.schema([(f.name, _to_arrow(f.dataType, f.name)) for f in struct_type])


def _to_spark(kind: pa.DataType, column: str) -> spark.DataType:
    if pa.types.is_list(kind):
        return spark.ArrayType(_to_spark(kind.value_type, column))
    if pa.types.is_map(kind) and not pa.types.is_map(kind.key_type):  # Spark has no map whose keys are maps
        return spark.MapType(_to_spark(kind.key_type, column), _to_spark(kind.item_type, column))
    if pa.types.is_struct(kind):
        _refuse_twice([f.name for f in kind], inside=column)
        return spark.StructType([spark.StructField(f.name, _to_spark(f.type, f"{column}.{f.name}")) for f in kind])
    if pa.types.is_decimal128(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    found = _PLAIN.get(kind) or _UNSIGNED.get(kind)
    if found is None:
        raise BadSchema(what=f"column {column!r} has the type {kind}, which Spark has not", do=f"Types here: {PLAIN}")
    return found


def _to_arrow(kind: spark.DataType, column: str) -> pa.DataType:
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_to_arrow(kind.elementType, column))
    if isinstance(kind, spark.MapType):
        return pa.map_(_to_arrow(kind.keyType, column), _to_arrow(kind.valueType, column))
    if isinstance(kind, spark.StructType):
        _refuse_twice(kind.names, inside=column)
        return pa.struct([(f.name, _to_arrow(f.dataType, f"{column}.{f.name}")) for f in kind])
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.CharType | spark.VarcharType):
        return pa.string()
    found = _BACK.get(type(kind))
    if found is None:
        raise BadSchema(
            what=f"column {column!r} has Spark's type {kind.simpleString()}, which a topic cannot have",
            do=f"{_INSTEAD.get(type(kind), 'Cast it or leave it out')}; types here: {PLAIN}",
        )
    return found


_INSTEAD: dict[type[spark.DataType], str] = {
    spark.TimestampNTZType: "Say which zone it is in: cast it to timestamp, or use to_utc_timestamp",
    spark.NullType: "A bare NULL has no type: cast it, as in lit(None).cast('string')",
    spark.VariantType: "Turn it into text with to_json, or take typed fields out of it with variant_get",
    spark.DayTimeIntervalType: "Turn it into a number, as in unix_micros(a) - unix_micros(b)",
}


def _refuse_twice(names: Iterable[str], *, inside: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            where = f"column {name!r}" if not inside else f"field {name!r} of column {inside!r}"
            raise BadSchema(what=f"{where} stands twice", do="Rename or drop one of them")
        seen.add(name)
