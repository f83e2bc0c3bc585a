"""DuckDB as a calculator: one connection in memory a thread, one thread of its own, UTC, no files, no network."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa

from headwater.log.recent import Recent
from headwater.process.prepared import Prepared

VERSION = duckdb.__version__
FEW = 20_000
"""Rows of all tables of a query together, up to which planning it costs more than running it."""
KEPT = 256
"""Queries that stay prepared in a thread: 50 to 250 KB each."""


def run(sql: str, **tables: pa.Table) -> pa.Table:
    """The answer to a query over Arrow tables, each known in the SQL by its keyword; it will be asked again.

    The order of its rows is a function of the query and its tables: a batch that runs twice says the same.
    """
    if not tables or sum(table.num_rows for table in tables.values()) > FEW:
        return ask(sql, **tables)
    return _plain(_calculator().prepared(sql, tables).run(tables))


def ask(sql: str, **tables: pa.Table) -> pa.Table:
    """As `run`, for a question that is asked once."""
    connection = _calculator().connection
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return _plain(connection.sql(sql).to_arrow_table())
    finally:
        for name in tables:
            connection.unregister(name)


class _Calculator:
    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET threads = 1")
        self.connection.execute("SET enable_external_access = false")
        _in_utc(self.connection)
        self._prepared: Recent[Prepared] = Recent(most=KEPT)

    def prepared(self, sql: str, tables: dict[str, pa.Table]) -> Prepared:
        question = (sql, *((name, table.schema) for name, table in tables.items()))
        known = self._prepared.get(question)
        if known is None:
            known = Prepared(_in_utc(self.connection.cursor()), sql, tables)
            self._prepared.put(question, known)
        return known


def _in_utc(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection.execute("SET TimeZone = 'UTC'")
    return connection


_local = threading.local()


def _calculator() -> _Calculator:
    calculator: _Calculator | None = getattr(_local, "calculator", None)
    if calculator is None:
        calculator = _local.calculator = _Calculator()
    return calculator


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
