"""A large table is read in ranges of its key, in parallel, and goes on after a crash with those that are not done.

Ranges are of the first column of the key, if that is an integer; other tables are one range.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture.postgres.connection import Connection, quoted
from headwater.capture.postgres.tables import Table

Mask = npt.NDArray[np.bool_]

RANGE_ROWS = 250_000
INTEGERS = (20, 21, 23)


@dataclass(frozen=True)
class Range:
    """low <= key < high; None is without end."""

    low: int | None = None
    high: int | None = None

    def condition(self, column: str) -> str:
        told = [f"{column} >= {self.low}"] if self.low is not None else []
        told += [f"{column} < {self.high}"] if self.high is not None else []
        return " AND ".join(told) or "true"

    def holds(self, keys: pa.Array) -> Mask:
        inside = np.ones(len(keys), np.bool_)
        if self.low is not None:
            inside &= keys.to_numpy(zero_copy_only=False) >= self.low
        if self.high is not None:
            inside &= keys.to_numpy(zero_copy_only=False) < self.high
        return inside


def ranges_of(connection: Connection, table: Table, rows: int) -> list[Range]:
    lead = next(column for column in table.columns if column.name == table.key[0])
    wanted = -(-rows // RANGE_ROWS)
    if lead.oid not in INTEGERS or wanted <= 1:
        return [Range()]
    name = quoted(lead.name)
    query = f"SELECT min({name})::bigint, max({name})::bigint FROM {table.sql_name}"
    low, high = connection.execute(query.encode()).fetchone() or (None, None)
    if low is None or high is None or high == low:
        return [Range()]
    width = max(1, -(-(high - low + 1) // wanted))
    bounds: list[Any] = [None, *range(low + width, high + 1, width), None]
    return [Range(begin, end) for begin, end in itertools.pairwise(bounds)]


def rows_of(connection: Connection, table: Table) -> int:
    """About how many there are: what the planner believes or, if it knows nothing, what the size allows for."""
    query = (
        "SELECT CASE WHEN reltuples >= 0 THEN reltuples ELSE pg_relation_size(oid) / 60 END::bigint"
        " FROM pg_class WHERE oid = %s"
    )
    row: Any = connection.execute(query, (table.oid,)).fetchone()
    return int(row[0]) if row is not None else 0
