"""What `FewRows` writes is what Arrow reads, and what it does not take, Arrow decides."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from headwater.log.embedded.fewrows import FewRows
from headwater.log.spec import TopicSpec
from headwater.records import schema_of, to_batch

COLUMNS = {
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{name: name for name in ("float64", "bool", "string", "binary", "date", "timestamp")},
}
SPEC = TopicSpec("t", schema_of(COLUMNS), key=("int64",), time="timestamp", kind="table")


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([low, high]) | st.integers(low, high)


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=ZONES)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": whole(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "float64": st.floats() | st.integers(-(2**53), 2**53),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "binary": st.binary(max_size=20),
    "date": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    "timestamp": TIMES | TIMES.map(datetime.isoformat),
}
MAY_MISS = {name for name in COLUMNS if name not in ("int64", "timestamp")}
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: VALUES[name] for name in COLUMNS if name not in MAY_MISS},
        optional={**{name: st.none() | VALUES[name] for name in MAY_MISS}, "_weight": st.sampled_from([-1, 1, 7])},
    ),
    min_size=1,
    max_size=12,
)


def few(spec: TopicSpec = SPEC) -> FewRows:
    made = FewRows.of(spec.stored, spec.required)
    assert made is not None
    return made


@given(ROWS)
def test_the_message_is_what_arrow_makes_of_the_rows(rows: list[dict[str, Any]]) -> None:
    writer = few()
    columns = writer.typed(rows)
    assert columns is not None
    message = writer.message(columns, range(len(rows)))
    assert message is not None
    found = ipc.read_record_batch(pa.py_buffer(message), SPEC.stored)
    found.validate(full=True)
    wanted = to_batch(rows, SPEC.stored, topic="t", required=SPEC.required)
    assert found.schema == wanted.schema
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())  # repr: a NaN is itself, 0.0 is not -0.0
    assert found.serialize().size == wanted.serialize().size


@given(ROWS, st.data())
def test_some_of_the_rows(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True).map(sorted))
    writer = few()
    columns = writer.typed(rows)
    assert columns is not None
    message = writer.message(columns, some)
    assert message is not None
    found = ipc.read_record_batch(pa.py_buffer(message), SPEC.stored).to_pylist()
    assert repr(found) == repr(to_batch([rows[row] for row in some], SPEC.stored, topic="t").to_pylist())


GOOD = {"int64": 1, "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    "row",
    [
        {"unknown": 1},
        {"int64": None},
        {"int64": True},
        {"int64": 1.0},
        {"float64": 2**53 + 1},
        {"float64": "1"},
        {"string": 1},
        {"bool": 1},
        {"date": datetime(2026, 1, 1)},
        {"timestamp": datetime(2026, 1, 1)},
        {"timestamp": "yesterday"},
        {"_weight": 0},
    ],
)
def test_what_is_not_exactly_of_its_type_is_left_to_arrow(row: dict[str, Any]) -> None:
    assert few().typed([GOOD, {**GOOD, **row}]) is None


@pytest.mark.parametrize("row", [{"int8": 128}, {"uint64": -1}, {"int64": 2**63}, {"string": "\ud800"}])
def test_numbers_and_text_that_do_not_fit_are_left_to_arrow(row: dict[str, Any]) -> None:
    writer = few()
    columns = writer.typed([{**GOOD, **row}])
    assert columns is None or writer.message(columns, [0]) is None


def test_nested_columns_are_left_to_arrow() -> None:
    assert FewRows.of(schema_of({"a": "list<int64>"}), ()) is None
