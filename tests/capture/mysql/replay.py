"""C1 for MySQL and MariaDB: a topic, replayed by DuckDB, is exactly the table, read by pymysql."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pymysql

import headwater as hw
from headwater.capture.mysql.connection import settings_of
from tests.capture import replay
from tests.capture.replay import Row, canonical


def in_database(url: str, table: str, columns: list[str]) -> list[Row]:
    names = ", ".join(f"`{name}`" for name in columns)
    with pymysql.connect(**settings_of(url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {names} FROM {table}")
        return sorted(canonical(list(cursor.fetchall())), key=repr)


assert_same = partial(replay.assert_same, rows_of=in_database)


def weights(log: hw.Log, topic: str) -> dict[tuple[Any, ...], int]:
    """Every row that the topic has ever told, with the sum of its weights."""
    spec = log.topic(topic)
    summed: dict[tuple[Any, ...], int] = {}
    for row in hw.Topic(log, spec).read().to_pylist():
        told = tuple(str(row[name]) if isinstance(row[name], Decimal) else row[name] for name in spec.schema.names)
        summed[told] = summed.get(told, 0) + row["_weight"]
    return summed
