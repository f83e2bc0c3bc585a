"""DuckDB as a calculator: one connection in memory a thread, one thread of its own, UTC, no files, no network."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa

VERSION = duckdb.__version__

_local = threading.local()


def run(sql: str, **tables: pa.Table) -> pa.Table:
    """The answer to one query over Arrow tables, each known in the SQL by its keyword."""
    connection = _connection()
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return _plain(connection.sql(sql).to_arrow_table())
    finally:
        for name in tables:
            connection.unregister(name)


def _connection() -> duckdb.DuckDBPyConnection:
    connection: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if connection is None:
        connection = duckdb.connect(":memory:")
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        _local.connection = connection
    return connection


def _plain(table: pa.Table) -> pa.Table:
    """DuckDB's answers without nullability flags or views, so that equal columns have equal types everywhere."""
    plain = pa.schema([pa.field(field.name, _plain_type(field.type)) for field in table.schema])
    return table if table.schema == plain else table.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns(names: tuple[str, ...] | list[str], *, of: str = "") -> str:
    prefix = f"{of}." if of else ""
    return ", ".join(prefix + quoted(name) for name in names)
