"""A view's rows in a table of a PostgreSQL database, for programs that know SQL and nothing of us.

One `apply`, in one transaction:

    1  The row of marks is locked and compared: changes follow the mark they were made for, or nothing happens.
    2  Net changes are copied (COPY, as CSV that Arrow writes) into a temporary table.
    3  Rows of keys that are gone are deleted, the others inserted or updated, in one statement each.
    4  The mark is updated; commit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from headwater.errors import BadStore, StoreFailed, StoreTaken
from headwater.log.position import AppendNumber, Position
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.keys import typed_key
from headwater.serve.stores.net import Net, net, net_by_key, numbers, repeated
from headwater.serve.stores.plainvalues import json_text, untold
from headwater.serve.stores.postgres_table import MARKS, ROW, Table, identifier, prepare
from headwater.serve.stores.secrets import without

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable, Composed

CONNECT_S = 10
SILENT_S = 30
"""A server that has gone away without a word."""
LOCK_S = 60
GONE, TIMES, TURN = "_gone", "_times", "_turn"


class PostgresStore:
    """`url` is libpq's; `table` and `name` (for messages) have been taken out of it."""

    def __init__(self, url: str, table: Table, served: Served, *, name: str) -> None:
        self._url = url
        self._table = table
        self._served = served
        self._name = name
        self._open: Connection[Any] | None = None
        try:
            with self._connection() as connection:
                prepare(connection, table, served, store=name)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        try:
            import psycopg
        except ModuleNotFoundError:
            do = "Install it: pip install 'headwater[postgres]'"
            raise BadStore(store=self._name, why="the package psycopg is not installed", do=do) from None
        try:
            if self._open is None or self._open.closed:
                self._open = psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=CONNECT_S,
                    tcp_user_timeout=SILENT_S * 1000,
                    prepare_threshold=None,
                    application_name="headwater",
                )
                self._open.execute("SET TIME ZONE 'UTC'")
                self._open.execute(f"SET lock_timeout = '{LOCK_S}s'")
            yield self._open
        except psycopg.ProgrammingError as error:  # privileges, too
            raise BadStore(
                store=self._name, why=self._why(error), do="Mend it in the database, then run again"
            ) from error
        except psycopg.Error as error:
            raise StoreFailed(store=self._name, why=self._why(error)) from error

    def _why(self, error: Exception) -> str:
        return without(self._url, " ".join(str(error).split()))

    def mark(self) -> Mark:
        with self._connection() as connection:
            return self._mark(connection)

    def _mark(self, connection: Connection[Any], lock: str = "") -> Mark:
        from psycopg import sql

        row = connection.execute(
            sql.SQL("SELECT version, number, position, covers FROM {} WHERE table_name = %s" + lock).format(
                self._marks
            ),
            (self._table.name,),
        ).fetchone()
        if row is None or row[0] != self._served.version:
            raise StoreTaken(store=self._name, by=row[0] if row else "")
        found = Mark(AppendNumber(row[1]), Position.parse(row[2]), Position.parse(row[3]))
        return found if found.number else NOTHING

    @property
    def _marks(self) -> Composable:
        from psycopg import sql

        return sql.Identifier(self._table.schema, MARKS)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        key, schema = self._served.key, self._served.schema
        some = net_by_key(changes, schema, key) if key else net(changes, schema)
        with self._connection() as connection, connection.transaction():
            expect(self._mark(connection, " FOR UPDATE"), after, store=self._name)  # 1
            if some.here.num_rows or some.gone.num_rows:
                self._copy(connection, some)  # 2
                if key:  # 3
                    self._delete_by_key(connection, some.gone)
                    self._upsert(connection)
                else:
                    self._replace_in_bag(connection)
                connection.execute("DROP TABLE pg_temp.changes")
            self._set_mark(connection, mark)  # 4

    def _set_mark(self, connection: Connection[Any], mark: Mark) -> None:
        from psycopg import sql

        connection.execute(
            sql.SQL("UPDATE {} SET number = %s, position = %s, covers = %s WHERE table_name = %s").format(self._marks),
            (mark.number, str(mark.position), str(mark.covers), self._table.name),
        )

    def _copy(self, connection: Connection[Any], some: Net) -> None:
        from psycopg import sql

        connection.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE changes ON COMMIT DROP AS SELECT {}, false AS {}, 0::bigint AS {}, 0::bigint AS"
                " {} FROM {} WITH NO DATA"
            ).format(self._columns(), *map(sql.Identifier, (GONE, TIMES, TURN)), identifier(self._table))
        )
        bag = not self._served.key
        here = repeated(some.here, some.here_times) if bag else some.here
        with connection.cursor().copy("COPY pg_temp.changes FROM STDIN (FORMAT csv)") as copy:
            copy.write(_csv(here, False, [1] * here.num_rows, bag))
            copy.write(_csv(some.gone, True, some.gone_times, bag))

    def _delete_by_key(self, connection: Connection[Any], gone: pa.Table) -> None:
        """Equality finds rows by the index; keys with a null in them are few, and searched for."""
        from psycopg import sql

        key = self._served.key
        with_null = any(gone[name].null_count for name in key)
        whole = sql.SQL(" AND ").join(sql.SQL("s.{} IS NOT NULL").format(sql.Identifier(name)) for name in key)
        statement = sql.SQL("DELETE FROM {} t USING pg_temp.changes s WHERE s.{} AND {} AND {}")
        target, marked = identifier(self._table), sql.Identifier(GONE)
        if gone.num_rows:
            connection.execute(statement.format(target, marked, whole, _equal(key, "=")))
        if with_null:
            nulls = sql.SQL("NOT ({})").format(whole)
            connection.execute(statement.format(target, marked, nulls, _equal(key, "IS NOT DISTINCT FROM")))

    def _upsert(self, connection: Connection[Any]) -> None:
        from psycopg import sql

        key, names, target = self._served.key, self._served.schema.names, identifier(self._table)
        others = [name for name in names if name not in key]
        set_them = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} ({}) SELECT {} FROM pg_temp.changes s WHERE NOT s.{} ON CONFLICT ({}) DO {}"
            ).format(
                target,
                self._columns(),
                self._columns(),
                sql.Identifier(GONE),
                sql.SQL(", ").join(map(sql.Identifier, key)),
                sql.SQL("UPDATE SET {}").format(set_them) if others else sql.SQL("NOTHING"),
            )
        )

    def _replace_in_bag(self, connection: Connection[Any]) -> None:
        from psycopg import sql

        names = [*self._served.schema.names, ROW]
        target = identifier(self._table)
        connection.execute(
            sql.SQL(
                "DELETE FROM {t} WHERE ctid IN (SELECT id FROM (SELECT t.ctid AS id, s.{times} AS times, row_number()"
                " OVER (PARTITION BY s.{turn}) AS nth FROM {t} t JOIN pg_temp.changes s ON t.{row} = s.{row} AND {same}"
                " WHERE s.{gone}) found WHERE nth <= times)"
            ).format(
                t=target,
                times=sql.Identifier(TIMES),
                turn=sql.Identifier(TURN),
                row=sql.Identifier(ROW),
                gone=sql.Identifier(GONE),
                same=_equal(tuple(names), "IS NOT DISTINCT FROM"),
            )
        )
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM pg_temp.changes s WHERE NOT s.{}").format(
                target, self._columns(), self._columns(), sql.Identifier(GONE)
            )
        )

    def _columns(self) -> Composed:
        from psycopg import sql

        names = self._served.schema.names if self._served.key else [*self._served.schema.names, ROW]
        return sql.SQL(", ").join(map(sql.Identifier, names))

    def clear(self) -> None:
        from psycopg import sql

        with self._connection() as connection, connection.transaction():
            self._mark(connection, " FOR UPDATE")
            connection.execute(sql.SQL("DELETE FROM {}").format(identifier(self._table)))
            self._set_mark(connection, NOTHING)

    def read(self, *, limit: int | None = None) -> tuple[pa.Table, Mark]:
        from psycopg import sql

        return self._select(sql.SQL(""), (), limit)

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]:
        from psycopg import sql

        wanted = typed_key(self._served, key).to_pylist()[0]
        same = (
            sql.SQL("{} IS NULL" if value is None else "{} = %s").format(sql.Identifier(name))
            for name, value in wanted.items()
        )
        where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(same))
        table, mark = self._select(where, tuple(value for value in wanted.values() if value is not None), 1)
        return (table.to_pylist()[0] if table.num_rows else None), mark

    def _select(self, where: Composable, given: tuple[Any, ...], limit: int | None) -> tuple[pa.Table, Mark]:
        """Values come as JSON has them: so each is read as it was written, whatever its column is."""
        from psycopg import sql

        schema = self._served.schema
        told = sql.SQL(", ").join(_json_of(field) for field in schema)
        query = sql.SQL("SELECT {} FROM {}{} LIMIT %s").format(told, identifier(self._table), where)
        with self._connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            rows = connection.execute(query, (*given, limit)).fetchall()
            mark = self._mark(connection)
        return untold([dict(zip(schema.names, row, strict=True)) for row in rows], schema), mark

    def version(self) -> int:
        return self.mark().number

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


def _equal(names: Sequence[str], same: str) -> Composed:
    from psycopg import sql

    each = (sql.SQL("t.{0} {1} s.{0}").format(sql.Identifier(name), sql.SQL(same)) for name in names)
    return sql.SQL(" AND ").join(each)


def _json_of(field: pa.Field) -> Composed:
    from psycopg import sql

    name, kind = sql.Identifier(field.name), field.type
    if pa.types.is_binary(kind):
        return sql.SQL("encode({}, 'base64')").format(name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return sql.SQL("to_json({}) #>> '{{}}'").format(name)
    if pa.types.is_decimal(kind) or pa.types.is_string(kind):
        return sql.SQL("{}::text").format(name)
    return sql.Composed([name])


def _csv(rows: pa.Table, gone: bool, times: list[int], bag: bool) -> bytes:
    """As PostgreSQL reads it: nothing is null, "" is empty text, bytes are in hex."""
    columns = {field.name: _written(rows[field.name].combine_chunks()) for field in rows.schema}
    if bag:
        columns[ROW] = numbers(rows)
    count = rows.num_rows
    columns[GONE] = pa.repeat(pa.scalar(gone), count)
    columns[TIMES] = pa.array(times, pa.int64())
    columns[TURN] = pa.array(np.arange(count), pa.int64())
    written = io.BytesIO()
    csv.write_csv(pa.table(columns), written, csv.WriteOptions(include_header=False))
    return written.getvalue()


def _written(column: Any) -> Any:
    kind = column.type
    if pa.types.is_nested(kind):
        return json_text(column)
    if pa.types.is_binary(kind):
        return pa.array([None if each is None else "\\x" + each.hex() for each in column.to_pylist()], pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))  # without its zone, which is UTC on both sides
    return column
