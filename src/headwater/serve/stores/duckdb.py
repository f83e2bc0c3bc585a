"""A view's rows in a DuckDB file, for analysis. DuckDB lets one process at a time have the file open."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import BadStore, StoreFailed, StoreTaken
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.keys import typed_key
from headwater.serve.stores.net import net, net_by_key, repeated

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MARKS = "headwater_marks"
_TIMES, _TURN = "_times", "_turn"


class DuckDBStore:
    """The table has the view's columns in DuckDB's types; `headwater_marks` has a row a table: version and mark."""

    def __init__(self, path: Path, table: str, served: Served, *, name: str) -> None:
        self._path = path
        self._table = _quoted(table)
        self._plain = table
        self._served = served
        self._name = name
        self._names = ", ".join(map(_quoted, served.schema.names))
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = self._opened()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _opened(self) -> DuckDBPyConnection:
        import duckdb

        try:
            connection = duckdb.connect(str(self._path))
            _run(connection, "SET TimeZone = 'UTC'")
            return connection
        except duckdb.Error as error:
            raise StoreFailed(store=self._name, why=_first(error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[DuckDBPyConnection]:
        import duckdb

        try:
            with self._lock:
                self._connection.begin()
                try:
                    yield self._connection
                    self._connection.commit()
                except BaseException:
                    self._connection.rollback()
                    raise
        except duckdb.Error as error:
            raise StoreFailed(store=self._name, why=_first(error)) from error

    def _prepare(self) -> None:
        with self._transaction() as connection:
            _run(
                connection,
                f"CREATE TABLE IF NOT EXISTS {MARKS} (table_name VARCHAR PRIMARY KEY, version VARCHAR, mark VARCHAR)",
            )
            found = _run(connection, f"SELECT version FROM {MARKS} WHERE table_name = ?", [self._plain])
            if found and found[0][0] == self._served.version:
                return
            there = "SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND database_name = current_database()"
            if not found and _run(connection, there, [self._plain]):
                do = "Name another with ?table=NAME: its rows would be lost"
                raise BadStore(store=self._name, why=f"there is a table {self._plain!r} already", do=do)
            connection.register("_headwater_made", self._served.schema.empty_table())
            _run(connection, f"CREATE OR REPLACE TABLE {self._table} AS SELECT * FROM _headwater_made")
            connection.unregister("_headwater_made")
            _run(
                connection,
                f"INSERT OR REPLACE INTO {MARKS} VALUES (?, ?, ?)",
                [self._plain, self._served.version, str(NOTHING)],
            )

    def _mark(self, connection: DuckDBPyConnection) -> Mark:
        query = f"SELECT version, mark FROM {MARKS} WHERE table_name = ?"
        rows = _run(connection, query, [self._plain])
        if not rows or rows[0][0] != self._served.version:
            raise StoreTaken(store=self._name, by=rows[0][0] if rows else "")
        return Mark.parse(rows[0][1])

    def mark(self) -> Mark:
        with self._transaction() as connection:
            return self._mark(connection)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        key, schema = self._served.key, self._served.schema
        some = net_by_key(changes, schema, key) if key else net(changes, schema)
        gone = some.gone.append_column(_TIMES, pa.array(some.gone_times, pa.int64()))
        gone = gone.append_column(_TURN, pa.array(range(gone.num_rows), pa.int64()))
        here = some.here if key else repeated(some.here, some.here_times)
        with self._transaction() as connection:
            expect(self._mark(connection), after, store=self._name)
            if gone.num_rows:
                with _registered(connection, "_headwater_gone", gone):
                    self._delete(connection, schema.names if not key else list(key))
            if here.num_rows:
                with _registered(connection, "_headwater_here", here):
                    if key:
                        _run(
                            connection, f"DELETE FROM {self._table} t USING _headwater_here s WHERE {_same(list(key))}"
                        )
                    _run(connection, f"INSERT INTO {self._table} SELECT {self._names} FROM _headwater_here")
            _run(connection, f"UPDATE {MARKS} SET mark = ? WHERE table_name = ?", [str(mark), self._plain])

    def _delete(self, connection: DuckDBPyConnection, names: list[str]) -> None:
        _run(
            connection,
            f"DELETE FROM {self._table} WHERE rowid IN (SELECT id FROM (SELECT t.rowid AS id, s.{_TIMES} AS times,"
            f" row_number() OVER (PARTITION BY s.{_TURN}) AS nth FROM {self._table} t JOIN _headwater_gone s"
            f" ON {_same(names)}) WHERE nth <= times)",
        )

    def clear(self) -> None:
        with self._transaction() as connection:
            self._mark(connection)
            _run(connection, f"DELETE FROM {self._table}")
            _run(connection, f"UPDATE {MARKS} SET mark = ? WHERE table_name = ?", [str(NOTHING), self._plain])

    def read(self, *, limit: int | None = None) -> tuple[pa.Table, Mark]:
        with self._transaction() as connection:
            some = "" if limit is None else f" LIMIT {limit:d}"
            found = connection.sql(f"SELECT {self._names} FROM {self._table}{some}").to_arrow_table()
            return found.cast(self._served.schema), self._mark(connection)

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]:
        wanted = typed_key(self._served, key)
        with self._transaction() as connection, _registered(connection, "_headwater_key", wanted):
            found = connection.sql(
                f"SELECT {', '.join(f't.{_quoted(name)}' for name in self._served.schema.names)}"
                f" FROM {self._table} t JOIN _headwater_key s ON {_same(wanted.schema.names)}"
            ).to_arrow_table()
            rows = found.cast(self._served.schema).to_pylist()
            return (rows[0] if rows else None), self._mark(connection)

    def version(self) -> int:
        return self.mark().number

    def close(self) -> None:
        self._connection.close()


def _run(connection: DuckDBPyConnection, query: str, given: list[Any] | None = None) -> list[tuple[Any, ...]]:
    """To its end: DuckDB takes no other statement before."""
    return connection.execute(query, given).fetchall()


@contextmanager
def _registered(connection: DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    connection.register(name, table)
    try:
        yield
    finally:
        connection.unregister(name)


def _same(names: list[str]) -> str:
    return " AND ".join(f"t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)}" for name in names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]
