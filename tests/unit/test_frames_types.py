"""Schemas of ours and of Spark's: there and back, and what has no place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from headwater.errors import BadSchema
from headwater.process.frames.types import arrow_schema, spark_schema
from headwater.records import schema_of
from headwater.typenames import NAMED

SIGNED = {name: name for name in NAMED if not name.startswith("uint")}
NESTED = {
    "price": "decimal(18,4)",
    "tags": "list<string>",
    "place": "struct<lat: float64, seen: list<struct<at: timestamp>>>",
    "counts": "map<string, list<int64>>",
}


def test_every_type_of_ours_comes_back_as_it_was() -> None:
    ours = schema_of(SIGNED | NESTED)
    back = arrow_schema(spark_schema(ours))
    assert back.equals(ours, check_metadata=True)
    assert [str(field) for field in back] == [str(field) for field in ours]


def test_unsigned_numbers_travel_as_the_next_wider_type() -> None:
    ours = schema_of({"a": "uint8", "b": "uint16", "c": "uint32", "d": "uint64"})
    travels = arrow_schema(spark_schema(ours))
    assert travels.types == [pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0)]
    most = pa.table(
        {
            name: pa.array([2**bits - 1], ours.field(name).type)
            for name, bits in zip("abcd", (8, 16, 32, 64), strict=True)
        }
    )
    assert most.cast(travels).cast(ours).equals(most)


def test_flags_of_nullability_and_spellings_of_spark_are_dropped() -> None:
    theirs = spark.StructType(
        [
            spark.StructField("a", spark.VarcharType(9), nullable=False, metadata={"spark.watermarkDelayMs": 1}),
            spark.StructField("b", spark.ArrayType(spark.LongType(), containsNull=False), nullable=False),
        ]
    )
    assert arrow_schema(theirs).equals(schema_of({"a": "string", "b": "list<int64>"}), check_metadata=True)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (spark.DayTimeIntervalType(), "unix_micros"),
        (spark.YearMonthIntervalType(), "Cast it"),
        (spark.VariantType(), "to_json"),
        (spark.TimestampNTZType(), "zone"),
        (spark.NullType(), "bare NULL"),
        (spark.TimeType(), "Cast it"),
    ],
)
def test_a_type_that_a_topic_cannot_have_is_refused_by_its_column(kind: spark.DataType, said: str) -> None:
    inner = spark.StructType([spark.StructField("b", kind)])
    with pytest.raises(BadSchema, match=f"column 'a.b' has Spark's type .*{said}"):
        arrow_schema(spark.StructType([spark.StructField("a", inner)]))


def test_a_type_that_spark_has_not_is_refused_by_its_column() -> None:
    with pytest.raises(BadSchema, match="column 'a' has the type duration"):
        spark_schema(pa.schema([("a", pa.duration("us"))]))


def test_a_column_that_stands_twice_is_refused() -> None:
    twice = spark.StructType([spark.StructField("id", spark.LongType())] * 2)
    with pytest.raises(BadSchema, match="column 'id' stands twice"):
        arrow_schema(twice)
