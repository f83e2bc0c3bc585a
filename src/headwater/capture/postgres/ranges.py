"""A large table is read in ranges of its key, in parallel, and goes on after a crash with those that are not done.

Ranges are of the first column of the key, if that is an integer; other tables are one range.
"""

from __future__ import annotations

from typing import Any

from headwater.capture.postgres.connection import Connection, quoted
from headwater.capture.postgres.tables import Table
from headwater.capture.ranges import RANGE_ROWS, Range, cut

INTEGERS = (20, 21, 23)


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
    return cut(low, high, wanted)


def rows_of(connection: Connection, table: Table) -> int:
    """About how many there are: what the planner believes or, if it knows nothing, what the size allows for."""
    query = (
        "SELECT CASE WHEN reltuples >= 0 THEN reltuples ELSE pg_relation_size(oid) / 60 END::bigint"
        " FROM pg_class WHERE oid = %s"
    )
    row: Any = connection.execute(query, (table.oid,)).fetchone()
    return int(row[0]) if row is not None else 0
