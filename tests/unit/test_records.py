from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadRecord, BadSchema
from headwater.records import schema_of, to_batch

SCHEMA = schema_of({"user_id": "int64", "page": "string", "at": "timestamp", "ok": "bool", "day": "date"})


def batch(rows: Any, **given: Any) -> pa.RecordBatch:
    return to_batch(rows, SCHEMA, topic="clicks", **given)


def test_dicts_become_typed_columns_and_missing_ones_null() -> None:
    rows = batch([{"user_id": 1, "at": "2026-01-02T03:04:05Z", "day": "2026-01-02"}, {"page": "/", "ok": True}])
    assert rows.schema == SCHEMA
    assert rows.to_pylist()[0] == {
        "user_id": 1,
        "page": None,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "ok": None,
        "day": datetime.date(2026, 1, 2),
    }


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05", "2026-01-02 04:04:05+01:00"])
def test_times_as_text_are_utc_unless_they_say_otherwise(text: str) -> None:
    at = batch([{"at": text}]).column("at")[0].as_py()
    assert at == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def test_arrow_is_cast_where_nothing_is_lost() -> None:
    rows = batch(pa.table({"user_id": pa.array([1, 2], pa.int32()), "page": ["a", None]}))
    assert rows.column("user_id").to_pylist() == [1, 2]
    assert rows.column("at").null_count == 2


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [{"user_id": 1}, {"user_id": "one"}],
            "topic 'clicks', row 1 of the append, column 'user_id': 'one' is not int64",
        ),
        ([{"user_id": 2**70}], "row 0 of the append, column 'user_id'"),
        ([{"user_id": True}], "a bool is not a number"),
        ([{"user_id": 1.5}], "column 'user_id': 1.5 is not int64"),
        ([{"page": 7}], "column 'page': 7 is not string"),
        ([{"at": "yesterday"}], "column 'at': 'yesterday' is not timestamp"),
        ([{"paeg": "/"}], "column 'paeg': no such column; the topic has user_id, page, at, ok, day"),
        (["text"], "row 0 of the append: a record is a mapping, got str"),
        ('{"user_id": 7}\n{oops\n', "row 1 of the append: the line is not JSON"),
        (pa.table({"user_id": ["x"]}), "column 'user_id': not int64"),
        (pa.table({"nope": [1]}), "column 'nope': no such column"),
    ],
)
def test_a_record_that_does_not_fit_is_named_by_row_and_column(rows: Any, told: str) -> None:
    with pytest.raises(BadRecord) as caught:
        batch(rows)
    assert told in str(caught.value)
    assert "nothing was appended" in str(caught.value)


def test_a_null_in_the_key_is_refused() -> None:
    with pytest.raises(BadRecord, match="row 1 of the append, column 'user_id': null or missing in a key"):
        batch([{"user_id": 1}, {"page": "/"}], required=("user_id",))


def test_a_missing_weight_is_one_and_zero_is_refused() -> None:
    stored = SCHEMA.append(pa.field("_weight", pa.int64()))
    assert to_batch([{"user_id": 1}], stored, topic="t").column("_weight").to_pylist() == [1]
    assert to_batch(pa.table({"user_id": [1]}), stored, topic="t").column("_weight").to_pylist() == [1]
    with pytest.raises(BadRecord, match="a weight of zero says nothing"):
        to_batch([{"user_id": 1, "_weight": 0}], stored, topic="t")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"a": "text"}, "column 'a' has the type 'text'"),
        ({"_a": "int64"}, "column '_a' begins with '_'"),
        ({}, "a topic without columns"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "column 'a' stands twice"),
        (pa.schema([("a", pa.time64("us"))]), "column 'a' has the type time64"),
    ],
)
def test_a_bad_schema_is_refused(columns: Any, told: str) -> None:
    with pytest.raises(BadSchema) as caught:
        schema_of(columns)
    assert told in str(caught.value)
