"""One question in SQL over topics and views, answered by DuckDB in memory: nothing can be written, no file be read.

    1  The text is parsed: one statement, a SELECT, over known names and ranges; else it is refused.
    2  What it names is read: a stream's records, a table's rows as they are now, a view's rows.
    3  DuckDB answers, with no access to files or network, for as long as it may, up to as many rows as it may.

Only what the question names is known to DuckDB, so whatever slips through 1 finds nothing else in 3.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.errors import QueryRefused, QueryStopped, TopicNotFound
from headwater.log.protocol import Log
from headwater.log.spec import INTERNAL, TopicSpec
from headwater.log.topic import METADATA
from headwater.records import DELETED, OFFSET, WEIGHT

MEMORY = "1GB"
_LESS = "Ask for less, or make it a view: views are kept ready"


@dataclass(frozen=True)
class Question:
    """A SELECT that may be asked: the names it reads, and its text with those names replaced by plain ones."""

    text: str
    names: Mapping[str, str]
    """From a topic or view to its name in `text`."""
    columns: frozenset[str] | None
    """All the columns it can mean, in lower case; None: any."""


@dataclass(frozen=True)
class Answer:
    rows: pa.Table
    truncated: bool
    """There were more rows than were asked for."""


def parse(sql: str) -> Question:
    try:
        statements = [each for each in sqlglot.parse(sql, dialect="duckdb") if each is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryRefused(why=f"it is not SQL ({_first_line(error)})") from None
    if len(statements) != 1:
        raise QueryRefused(why=f"it has {len(statements)} statements")
    (query,) = statements
    if not isinstance(query, exp.Query):
        raise QueryRefused(why=f"it is {_article(query.key)}, not a SELECT")
    for node in query.walk():
        if isinstance(node, exp.DML | exp.DDL | exp.Command | exp.Into) and not isinstance(node, exp.Query):
            raise QueryRefused(why=f"it has {_article(node.key)} in it")
    return _named(query)


def _named(query: exp.Query) -> Question:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    names: dict[str, str] = {}
    for table in list(query.find_all(exp.Table)):
        function = table.this
        if not isinstance(function, exp.Identifier):
            if not isinstance(function, exp.GenerateSeries):
                raise QueryRefused(why=f"it reads from {function.sql(dialect='duckdb')[:60]!r}")
            continue
        name = ".".join(part.name for part in table.parts)
        if name.lower() in own and len(table.parts) == 1:
            continue
        if name.startswith(INTERNAL):
            raise QueryRefused(why=f"{name!r} is Headwater's own")
        alias = names.setdefault(name, f"t{len(names)}")
        said = table.alias or table.name
        table.set("this", exp.to_identifier(alias))
        table.set("db", None)
        table.set("catalog", None)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(said, quoted=True)))
    starred = any(query.find_all(exp.Star))
    used = frozenset(column.name.lower() for column in query.find_all(exp.Column))
    return Question(query.sql(dialect="duckdb"), names, None if starred else used)


class Asking:
    """Answers questions over one log and some views. `read_view` gives a view's rows; None: it is no view.

    `called` has the topics of what is known by another name: a view's current version.
    """

    def __init__(
        self,
        log: Log,
        read_view: Callable[[str], pa.Table | None] = lambda name: None,
        *,
        called: Mapping[str, str] | None = None,
        read_rows: int = 20_000_000,
    ) -> None:
        self._log = log
        self._called = called or {}
        self._read_view = read_view
        self._most = read_rows

    def ask(self, question: Question, *, limit: int, timeout_s: float) -> Answer:
        import duckdb

        deadline = time.monotonic() + timeout_s
        connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            connection.interrupt()

        timer = threading.Timer(timeout_s, stop)
        timer.daemon = True
        try:
            for setting in ("TimeZone = 'UTC'", f"memory_limit = '{MEMORY}'", "threads = 1", "temp_directory = ''"):
                connection.execute(f"SET {setting}")
            timer.start()
            for name, alias in question.names.items():
                self._register(connection, name, alias, question)
                if time.monotonic() > deadline:
                    raise QueryStopped(limit_s=timeout_s)
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            rows = connection.sql(f"SELECT * FROM ({question.text}) LIMIT {limit + 1}").to_arrow_table()
        except duckdb.Error as error:
            if stopped.is_set():
                raise QueryStopped(limit_s=timeout_s) from None
            if isinstance(error, duckdb.OutOfMemoryException):
                raise QueryRefused(why=f"it takes more than {MEMORY} of memory", do=_LESS) from None
            raise QueryRefused(why=_first_line(error)) from None
        finally:
            timer.cancel()
            timer.join()
            connection.close()
        return Answer(_plain_numbers(rows.slice(0, limit)), rows.num_rows > limit)

    def _register(self, connection: Any, name: str, alias: str, question: Question) -> None:
        rows = self._read_view(name)
        if rows is not None:
            connection.register(alias, rows)
            return
        try:
            spec = self._log.topic(self._called.get(name, name))
        except TopicNotFound:
            raise QueryRefused(why=f"there is no topic or view {name!r}") from None
        connection.register(f"{alias}_records", self._records(spec, question.columns))
        connection.execute(f"CREATE TEMP VIEW {alias} AS {_rows_now(spec, f'{alias}_records')}")

    def _records(self, spec: TopicSpec, wanted: frozenset[str] | None) -> pa.Table:
        extents = self._log.extents(spec.name)
        count = sum(extent.end - extent.start for extent in extents.values())
        if count > self._most:
            raise QueryRefused(
                why=f"topic {spec.name!r} has {count} records, and a query may read {self._most}",
                do=_LESS,
            )
        needed = {*spec.key, WEIGHT, DELETED} if spec.kind == "table" else set()
        columns = [
            name
            for name in spec.stored.names
            if wanted is None or spec.weighted or name.lower() in wanted or name in needed
        ] or spec.stored.names[:1]
        schema = pa.schema([*(spec.stored.field(name) for name in columns), *METADATA])
        end = self._log.snapshot([spec.name]).position
        batches = [
            batch
            for partition, extent in extents.items()
            for batch in self._log.scan(
                spec.name, partition, extent.start, end.offset(spec.name, partition), columns=columns, metadata=True
            )
        ]
        tables = [pa.Table.from_batches([batch]).select(schema.names) for batch in batches]
        return pa.concat_tables([schema.empty_table(), *tables])


def _plain_numbers(rows: pa.Table) -> pa.Table:
    """DuckDB sums integers to 128 bits, which Arrow has as decimals: as integers again, where they fit."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int64()))
    return rows


def _rows_now(spec: TopicSpec, records: str) -> str:
    """Of a stream its records; of a table its rows: the sum of weights, or the newest of each key."""
    columns = ", ".join(_quoted(name) for name in spec.schema.names)
    if spec.weighted:
        summed = f"SELECT {columns}, sum({WEIGHT}) AS _times FROM {records} GROUP BY ALL HAVING sum({WEIGHT}) > 0"
        return f"SELECT {columns} FROM (SELECT *, unnest(range(_times::BIGINT)) FROM ({summed}))"
    if spec.upsert:
        keys = ", ".join(_quoted(name) for name in spec.key)
        newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {OFFSET} DESC) = 1"
        return (
            f"SELECT * EXCLUDE ({DELETED}, _partition, _offset, _appended_at)"
            f" FROM (SELECT * FROM {records} QUALIFY {newest}) WHERE NOT {DELETED}"
        )
    return f"SELECT * FROM {records}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _article(key: str) -> str:
    return f"{'an' if key[:1] in 'aeiou' else 'a'} {key.upper()}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
