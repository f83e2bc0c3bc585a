"""What the functions on frames decide without Spark: lengths of time, clocks, one record's attempt, a filter's size."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.clock import corrected
from headwater.durations import micros
from headwater.errors import BadFrame
from headwater.process.frames.attempt import attempted
from headwater.process.frames.bloom import shape_of
from headwater.records import schema_of


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 minutes", timedelta(minutes=10)),
        ("1 hour 30 minutes", timedelta(hours=1.5)),
        ("1 Day", timedelta(days=1)),
        ("250 milliseconds", timedelta(milliseconds=250)),
        (" 2 weeks ", timedelta(weeks=2)),
        ("1minute", timedelta(minutes=1)),
    ],
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, length: timedelta) -> None:
    assert timedelta(microseconds=micros(text, what="gap")) == length


@pytest.mark.parametrize(
    "text", ["", "ten minutes", "10", "minutes", "1 month", "-1 minute", "0 seconds", "5 minutes x", 5]
)
def test_anything_else_is_refused_by_the_name_it_was_given_under(text: Any) -> None:
    with pytest.raises(BadFrame, match=r"gap=.* is not a length of time above zero\. Write a number and a unit"):
        micros(text, what="gap")


def test_a_lateness_may_be_zero() -> None:
    assert micros("0 seconds", what="lateness", zero=True) == 0


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("wrong_by", [timedelta(0), timedelta(days=-400), timedelta(hours=3)])
def test_a_devices_clock_is_put_right_by_what_sent_and_received_are_apart(wrong_by: timedelta) -> None:
    happened, sent = NOON - timedelta(minutes=5) + wrong_by, NOON + wrong_by
    assert corrected(happened, sent, NOON) == NOON - timedelta(minutes=5)
    assert corrected(7_000_000, 9_000_000, 100_000_000) == 98_000_000


def test_nothing_happens_after_it_was_received() -> None:
    assert corrected(NOON + timedelta(days=9), NOON, NOON) == NOON  # the device's clock was set back in between
    assert corrected(NOON + timedelta(days=9), None, NOON) == NOON


def test_a_device_that_does_not_say_when_it_sent_is_believed() -> None:
    assert corrected(NOON - timedelta(days=9), None, NOON) == NOON - timedelta(days=9)


ORDERS = pa.record_batch(
    {"id": [1, 2, 3, 4], "text": ["5", "x", None, "0"], "at": pa.array([NOON] * 4, pa.timestamp("us", "UTC"))}
)
SHARES = schema_of({"id": "int64", "share": "float64"})


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return list(batch.to_pylist())


def share(record: dict[str, Any]) -> Any:
    record["text"] = (record["text"] or "none").strip()
    return {"id": record["id"], "share": 1 / int(record["text"])}


def test_a_record_on_which_the_function_raises_becomes_a_row_that_says_why_and_where() -> None:
    good, *bad = rows(attempted(ORDERS, share, SHARES))
    assert good == {"id": 1, "share": 0.2, "_error": None, "_record": None}
    assert [(row["id"], row["share"]) for row in bad] == [(None, None)] * 3
    assert bad[0]["_error"].startswith("ValueError: invalid literal for int() with base 10: 'x' (")
    assert bad[2]["_error"].startswith("ZeroDivisionError: division by zero (")
    line = 'return {"id": record["id"], "share": 1 / int(record["text"])}'
    assert all(__file__ in row["_error"] and row["_error"].endswith(f": {line})") for row in bad)
    assert [json.loads(row["_record"]) for row in bad] == [
        {"id": 2, "text": "x", "at": "2026-01-01T12:00:00+00:00"},
        {"id": 3, "text": None, "at": "2026-01-01T12:00:00+00:00"},  # as it came, not as the function left it
        {"id": 4, "text": "0", "at": "2026-01-01T12:00:00+00:00"},
    ]


def test_the_line_told_is_the_users_not_a_librarys() -> None:
    (row, *_) = rows(attempted(ORDERS, lambda record: json.loads("{"), SHARES))
    assert "JSONDecodeError" in row["_error"]
    assert f"({__file__}, line" in row["_error"]


def test_a_function_gives_one_row_or_none_or_many() -> None:
    def some(record: dict[str, Any]) -> Any:
        return [None, {"id": 2}, [{"id": 3}, {"id": 3, "share": 1}], []][record["id"] - 1]

    assert [(row["id"], row["share"], row["_error"]) for row in rows(attempted(ORDERS, some, SHARES))] == [
        (2, None, None),
        (3, None, None),
        (3, 1.0, None),
    ]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"id": "seven"}, "the result does not fit: column 'id': 'seven' is not int64"),
        ({"id": 1.5}, "the result does not fit: column 'id': 1.5 is not int64"),
        ({"id": 1, "hare": 2}, "the result does not fit: column 'hare': no such column"),
        (7, "TypeError: the function returned int; a dict, None or a list of dicts was expected"),
        ([{"id": 1}, 7], "TypeError: the function returned list"),
        ([{"id": 1}, {"id": "x"}], "the result does not fit: column 'id'"),
    ],
)
def test_a_result_that_does_not_fit_is_a_failure_of_its_record_alone(result: Any, said: str) -> None:
    told = rows(attempted(ORDERS, lambda record: result if record["id"] == 2 else {"id": record["id"]}, SHARES))
    assert [row["id"] for row in told] == [1, 3, 4, None]
    assert told[-1]["_error"].startswith(said)
    assert json.loads(told[-1]["_record"])["id"] == 2


def test_an_empty_batch_and_unsigned_columns_come_out_as_spark_expects_them() -> None:
    made = attempted(ORDERS.slice(0, 0), share, schema_of({"n": "uint64"}))
    assert (made.num_rows, made.schema.types) == (0, [pa.decimal128(20, 0), pa.string(), pa.string()])


@pytest.mark.parametrize("expected", [1, 10, 1000, 10_000, 100_000])
@pytest.mark.parametrize("false_positives", [0.5, 0.05, 0.01, 0.001])
def test_a_filter_is_as_large_as_its_rate_needs_and_not_much_larger(expected: int, false_positives: float) -> None:
    shape = shape_of(expected, false_positives)
    bits = shape.slice_bytes * 8
    rate = (1 - (1 - 1 / bits) ** expected) ** shape.slices
    assert rate <= false_positives
    least = expected * math.log(1 / false_positives) / math.log(2) ** 2
    assert shape.slices * (bits - 8) <= 1.1 * least + 8  # the best any Bloom filter can do, less what whole bytes take


@pytest.mark.parametrize(("expected", "rate"), [(0, 0.01), (10, 0.0), (10, 1.0), (1_000_000, 0.01)])
def test_a_filter_that_cannot_be_is_refused(expected: int, rate: float) -> None:
    with pytest.raises(BadFrame, match="a Bloom filter for"):
        shape_of(expected, rate)
