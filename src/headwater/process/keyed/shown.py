"""What an answer shows of its rows' columns, as data: so that few rows are shown without DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Column:
    """The column `of`, if it is asked for as `kind`; null where the number `over` is not above 0."""

    name: str
    of: str
    over: str | None = None
    scale: int | None = None
    """Of the decimal of 38 digits that it is shown as; None: as it is."""


@dataclass(frozen=True)
class Shown:
    columns: tuple[Column, ...]

    def of(self, rows: pa.Table) -> pa.Table | None:
        """None for columns of other types than the planner's own sums and counts have: DuckDB casts and compares others
        in its own way."""
        if not all(_alike(rows.schema, each) for each in self.columns):
            return None
        return pa.table({each.name: _shown(rows, each) for each in self.columns})


def _alike(schema: pa.Schema, each: Column) -> bool:
    kind = schema.field(each.of).type
    whole = pa.types.is_signed_integer(kind) or (pa.types.is_decimal128(kind) and kind.scale == 0)
    over = schema.field(each.over).type if each.over is not None else pa.int64()
    return bool((each.scale is None or whole) and pa.types.is_signed_integer(over))


def _shown(rows: pa.Table, each: Column) -> pa.ChunkedArray:
    column = rows[each.of]
    if each.scale is not None and column.type != (kind := pa.decimal128(38, each.scale)):
        column = column.cast(kind)
    if each.over is None:
        return column
    return pc.if_else(pc.greater(rows[each.over], 0), column, pa.scalar(None, column.type))
