"""A view's rows in a SQLite file: the default store. One process applies, any number read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Busy, Corrupt, StorageFailed
from headwater.log.position import AppendNumber, Position
from headwater.records import WEIGHT
from headwater.serve.question import Question
from headwater.serve.store import NOTHING, Mark, expect
from headwater.serve.stores.plainvalues import affinity, plain, row_numbers, typed
from headwater.serve.stores.sqlitekey import AskedKey
from headwater.serve.stores.sqlitequery import DECIMAL, learn_decimals, select

BUSY_S = 10.0
COPY_PAGES = 1024
_ROW = "_row"


class SqliteStore:
    """Table `rows` has the view's columns, `mark` the one row that says what they cover.

    Key columns may be null, so the key is an index and rows are found with IS, not a primary key. Rows without a key
    are a bag: each is there as often as it is, and found by a number made of all its values.
    """

    def __init__(self, path: Path, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self.path = path
        self.schema = schema
        self._key = key
        self._names = ", ".join(_quoted(name) for name in schema.names)
        self._where = " AND ".join(f"{_quoted(name)} IS ?" for name in key)
        self._same = " AND ".join(f"{_quoted(name)} IS ?" for name in schema.names)
        self._asked = AskedKey(schema, key, path.stem)
        self._one = (  # the mark, with the row of a key if there is one
            f"SELECT mark.number, mark.position, mark.covers, found.* FROM mark LEFT JOIN"
            f" (SELECT 1 AS _there, {self._names} FROM rows WHERE {self._where} LIMIT 1) AS found"
        )
        self._as_is = all(_as_is(field.type) for field in schema)
        self._local = threading.local()
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = ", ".join(f"{_quoted(field.name)} {affinity(field.type)}" for field in schema)
        if not key:
            columns += f", {_ROW} INTEGER"
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS rows({columns})")
            keys = ", ".join(_quoted(name) for name in key or (_ROW,))
            connection.execute(f"CREATE INDEX IF NOT EXISTS rows_by_key ON rows({keys})")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS mark(one INTEGER PRIMARY KEY CHECK (one = 1),"
                " number INTEGER NOT NULL, position TEXT NOT NULL, covers TEXT NOT NULL) STRICT"
            )

    @property
    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(int(BUSY_S * 1000))
            connection.pragma("journal_mode", "wal")
            # Whatever a power cut takes away, the follower applies again from the log: rows and mark go together.
            connection.pragma("synchronous", "NORMAL")
            self._local.connection = connection
        return connection

    @contextmanager
    def _transaction(self, begin: str = "BEGIN") -> Iterator[apsw.Connection]:
        with self._translated():
            connection = self._connection
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.BusyError as error:
            raise Busy(path=str(self.path), waited_s=BUSY_S) from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise Corrupt(what="the store", file=str(self.path)) from error
        except (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StorageFailed(act="using", file=str(self.path), why=str(error)) from error

    def mark(self) -> Mark:
        with self._transaction() as connection:
            return mark_of(connection)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        net = _net(changes, self.schema)
        gone = net.filter(pc.less(net[WEIGHT], 0))
        here = net.filter(pc.greater(net[WEIGHT], 0))
        with self._transaction("BEGIN IMMEDIATE") as connection:
            expect(mark_of(connection), after, store=str(self.path))
            if self._key:
                self._replace(connection, gone, here)
            else:
                self._replace_in_bag(connection, gone, here)
            connection.execute(
                "INSERT OR REPLACE INTO mark VALUES (1, ?, ?, ?)", (mark.number, str(mark.position), str(mark.covers))
            )

    def _replace(self, connection: apsw.Connection, gone: pa.Table, here: pa.Table) -> None:
        marks = ", ".join("?" * len(self.schema))
        connection.executemany(f"DELETE FROM rows WHERE {self._where}", _tuples(gone.select(list(self._key))))
        connection.executemany(
            f"INSERT INTO rows({self._names}) VALUES ({marks})", _tuples(here.drop_columns([WEIGHT]))
        )

    def _replace_in_bag(self, connection: apsw.Connection, gone: pa.Table, here: pa.Table) -> None:
        marks = ", ".join("?" * (len(self.schema) + 1))
        found = f"SELECT rowid FROM rows WHERE {_ROW} = ? AND {self._same} LIMIT ?"
        times = pc.negate(gone[WEIGHT]).to_pylist()
        connection.executemany(
            f"DELETE FROM rows WHERE rowid IN ({found})",
            ((number, *row, some) for number, row, some in zip(*_numbered(gone), times, strict=True)),
        )
        connection.executemany(
            f"INSERT INTO rows({self._names}, {_ROW}) VALUES ({marks})",
            (
                (*row, number)
                for number, row, some in zip(*_numbered(here), here[WEIGHT].to_pylist(), strict=True)
                for _ in range(some)
            ),
        )

    def clear(self) -> None:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute("DELETE FROM rows")
            connection.execute("DELETE FROM mark")

    def read(self, *, limit: int | None = None, asked: Question | None = None) -> tuple[pa.Table, Mark]:
        asked = asked or Question(limit=limit)
        query, given = select(asked, self.schema, self._plain)
        with self._transaction() as connection:
            if DECIMAL in query:
                learn_decimals(connection)
            rows = connection.execute(query, given).fetchall()
            return self._table(rows, asked.columns), mark_of(connection)

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]:
        wanted = self._asked.values(key)
        with self._translated():  # one statement sees one state
            found: Any = self._connection.execute(self._one, wanted).fetchone()
        if found is None:
            return None, NOTHING
        number, position, covers, there, *row = found
        mark = _mark(number, position, covers)
        if there is None:
            return None, mark
        if self._as_is:
            return dict(zip(self.schema.names, row, strict=True)), mark
        return self._table([row]).to_pylist()[0], mark

    def _plain(self, column: str, value: Any) -> Any:
        return plain(pa.array([value], self.schema.field(column).type))[0].as_py()

    def version(self) -> int:
        return int(self._connection.pragma("data_version"))

    def _table(self, rows: list[tuple[Any, ...]], names: Sequence[str] | None = None) -> pa.Table:
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.table(
            [typed(list(values), field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
        )

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection


def _as_is(kind: pa.DataType) -> bool:
    """Whether SQLite gives back the very value that Arrow would."""
    number = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    return bool(number or pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def _numbered(rows: pa.Table) -> tuple[list[int], list[tuple[Any, ...]]]:
    values = rows.drop_columns([WEIGHT])
    return row_numbers(values), list(_tuples(values))


def mark_of(connection: apsw.Connection) -> Mark:
    row = connection.execute("SELECT number, position, covers FROM mark").fetchone()
    return _mark(*row) if row else NOTHING


@lru_cache(maxsize=1024)
def _mark(number: int, position: str, covers: str) -> Mark:
    return Mark(AppendNumber(number), Position.parse(position), Position.parse(covers))


def mark_in(path: Path) -> Mark:
    """What a store's file covers, whatever view it is of."""
    with _opened(path) as connection:
        return mark_of(connection)


def copy_store(source: Path, target: Path) -> None:
    """The store as it is at one moment, also while others apply and read."""
    with _opened(source) as reading, _opened(target, apsw.SQLITE_OPEN_CREATE) as writing:
        reading.execute("BEGIN")
        mark_of(reading)  # from now on it sees one state
        with writing.backup("main", reading, "main") as copying:
            while not copying.done:
                copying.step(COPY_PAGES)
        reading.execute("COMMIT")


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[apsw.Connection]:
    try:
        connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE | flags)
        try:
            connection.set_busy_timeout(int(BUSY_S * 1000))
            yield connection
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise Corrupt(what=f"the store ({error})", file=str(path)) from error


def _net(changes: pa.Table, schema: pa.Schema) -> pa.Table:
    """Equal rows summed, in SQLite's values: what came and went in between is not written at all."""
    values = {name: plain(changes[name].combine_chunks()) for name in schema.names}
    summed = (
        pa.table({**values, WEIGHT: changes[WEIGHT]})
        .group_by(schema.names, use_threads=False)
        .aggregate([(WEIGHT, "sum")])
    )
    summed = summed.rename_columns([WEIGHT if name == f"{WEIGHT}_sum" else name for name in summed.column_names])
    return summed.select([*schema.names, WEIGHT]).filter(pc.not_equal(summed[WEIGHT], 0))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
