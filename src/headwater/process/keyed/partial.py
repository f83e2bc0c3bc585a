"""Partial results of few rows without DuckDB: what a grouping query over `changes` asks for, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.process import duck
from headwater.process.keyed.reducing import reduced
from headwater.process.keyed.summing import How
from headwater.records import WEIGHT

_MOST = 2**62


@dataclass(frozen=True)
class Number:
    """One aggregate: `how` over `of`, a column of `changes`, or over the number 1 where it is None."""

    name: str
    how: How
    of: str | None
    weighed: bool = False
    """Whether each value counts as often as its row is there."""
    known: str | None = None
    """Only rows count in which that column is not null."""
    scale: int | None = None
    """Of a decimal of 38 digits; None: a BIGINT, or for a least or greatest one the column's own type."""


@dataclass(frozen=True)
class Partial:
    """The query's columns: keys, each with the column of `changes` that it is, then numbers. Rows in which one of the
    `known` columns is null are left out."""

    keys: tuple[tuple[str, str], ...]
    numbers: tuple[Number, ...]
    known: tuple[str, ...] = ()

    def of(self, rows: pa.Table) -> pa.Table | None:
        """The query's answer over these rows; None where DuckDB is to be asked."""
        if rows.num_rows > duck.FEW:
            return None
        for name in self.known:
            if rows[name].null_count:
                rows = rows.filter(pc.is_valid(rows[name]))
        columns: dict[str, pa.ChunkedArray] = {name: rows[of] for name, of in self.keys}
        for number in self.numbers:
            column = _summands(rows, number) if number.how == "sum" else rows[str(number.of)]
            if column is None:
                return None
            columns[number.name] = column
        made = reduced(
            pa.table(columns), [name for name, _ in self.keys], [(each.name, each.how) for each in self.numbers]
        )
        if made is None:
            return None
        for number in self.numbers:
            if number.scale is not None:
                place = made.schema.get_field_index(number.name)
                made = made.set_column(place, number.name, made[number.name].cast(pa.decimal128(38, number.scale)))
        return made


def _summands(rows: pa.Table, number: Number) -> pa.Array | pa.ChunkedArray | None:
    """What is to be summed, as BIGINTs; None if that is not all that there is to it."""
    if number.known is not None and rows[number.known].null_count:
        return None
    if number.of is None:
        return pa.array(np.ones(rows.num_rows, np.int64))
    column = rows[number.of]
    if column.null_count or not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return None
    if column.type != pa.int64():
        column = column.cast(pa.int64())
    if not number.weighed:
        return column
    values, weights = column.to_numpy(), rows[WEIGHT].to_numpy()
    if len(values) and _largest(values) * _largest(weights) > _MOST:
        return None
    return pa.array(values * weights)


def _largest(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return max(abs(int(values.min())), abs(int(values.max())))
