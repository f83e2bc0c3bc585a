"""C1: a topic, replayed by DuckDB, is exactly the table: weights are summed, of upserts the newest of a key counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import psycopg
import pyarrow as pa

import headwater as hw

Row = tuple[Any, ...]


def replayed(log: hw.Log, topic: str) -> list[Row]:
    """The rows of the topic's table, sorted. A weight that is not 0 or 1 in sum is a fault of its own."""
    spec = log.topic(topic)
    records = hw.Topic(log, spec).read()
    names = ", ".join(f'"{name}"' for name in spec.schema.names)
    key = ", ".join(f'"{name}"' for name in spec.key)
    with duckdb.connect() as connection:
        connection.register("records", records)
        if spec.weighted:
            query = f"SELECT {names}, sum(_weight) FROM records GROUP BY ALL HAVING sum(_weight) <> 0"
            rows = canonical(connection.sql(query).to_arrow_table())
            assert all(row[-1] == 1 for row in rows), [row for row in rows if row[-1] != 1][:3]
            return sorted((row[:-1] for row in rows), key=repr)
        query = (
            f"SELECT {names} FROM records QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _offset DESC) = 1"
            " AND NOT _deleted"
        )
        return sorted(canonical(connection.sql(query).to_arrow_table()), key=repr)


def canonical(rows: pa.Table | list[Row]) -> list[Row]:
    """Values as they compare: moments in UTC, NaN equal to itself."""
    listed = [tuple(row.values()) for row in rows.to_pylist()] if isinstance(rows, pa.Table) else rows
    return [tuple(_value(value) for value in row) for row in listed]


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, list):
        return [_value(each) for each in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def in_database(url: str, table: str, columns: list[str]) -> list[Row]:
    names = ", ".join(f'"{name}"' for name in columns)
    with psycopg.connect(url, options="-c timezone=UTC") as connection:
        rows = connection.execute(f"SELECT {names} FROM {table}".encode()).fetchall()
        return sorted(canonical(rows), key=repr)


def assert_same(
    log: hw.Log, url: str, *tables: str, rows_of: Callable[[str, str, list[str]], list[Row]] = in_database
) -> None:
    for table in tables:
        spec = log.topic(table)
        there, captured = rows_of(url, table, spec.schema.names), replayed(log, table)
        if there != captured:
            missing = [row for row in there if row not in captured][:3]
            extra = [row for row in captured if row not in there][:3]
            raise AssertionError(f"{table}: {len(there)} rows, captured {len(captured)}; {missing=} {extra=}")
