"""Columns of fixed width go to numpy and back as they were."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.process.keyed.fixed import all_words, column_of, decimals, integers, taken_from, words

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.uint64(): [0, 1, 2**64 - 1],
    pa.float64(): [-0.0, float("inf"), 1.5],
    pa.float32(): [0.0, -1.5, 2.5],
    pa.bool_(): [True, False, True],
    pa.date32(): [date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    pa.time64("us"): [time(0), time(1, 2, 3, 4), time(23, 59, 59, 999999)],
    pa.timestamp("us", "UTC"): [datetime(1900, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)] * 2,
    pa.duration("us"): [timedelta(-1), timedelta(0), timedelta(microseconds=1)],
    pa.decimal128(38, 3): [Decimal("-12345678901234567890.123"), Decimal("0.001"), Decimal("-0.001")],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_come_back_as_they_were(kind: pa.DataType) -> None:
    whole = pa.chunked_array([pa.array(VALUES[kind], kind)])
    several = pa.chunked_array([whole.chunk(0), whole.chunk(0).slice(1)])
    for column in (whole, whole.slice(1), several, whole.slice(0, 0), pa.chunked_array([], kind)):
        found = words(column)
        assert found is not None
        back = column_of(kind, found)
        back.validate(full=True)
        assert back.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kind", [*VALUES, pa.string(), pa.list_(pa.int64())], ids=str)
def test_nulls_and_other_types_stay_arrows(kind: pa.DataType) -> None:
    assert words(pa.chunked_array([pa.nulls(2, kind)])) is None
    assert all_words(pa.table({"a": [1], "b": pa.nulls(1, kind)})) is None


def test_rows_are_taken_from_several_tables() -> None:
    tables = [pa.table({"n": pa.array(range(k, k + 9)), "b": [n % 2 == 0 for n in range(9)]}) for k in (0, 100)]
    parts = [(found, np.array(places)) for table, places in zip(tables, ([8, 0], [3]), strict=True)
             if (found := all_words(table)) is not None]  # fmt: skip
    assert taken_from(tables[0].schema, parts).to_pydict() == {"n": [8, 0, 103], "b": [True, True, False]}


def test_decimals_are_whole_numbers_while_they_fit() -> None:
    kind = pa.decimal128(38, 2)
    fits = pa.chunked_array([pa.array([Decimal("-0.01"), Decimal("92233720368547758.07")], kind)])
    digits = integers(fits)
    assert digits is not None
    assert digits.tolist() == [-1, 2**63 - 1]
    assert decimals(kind, digits).equals(fits.chunk(0))
    assert integers(pa.chunked_array([pa.array([Decimal("92233720368547758.08")], kind)])) is None
    assert integers(pa.chunked_array([pa.array([1.5])])) is None
