"""The table in PostgreSQL that a view is kept in: made by us, or the user's own, which is then checked, never altered.

Next to it, in the same schema, stands `headwater_marks`, one row a table:

    table_name   which table                 version    the version of the view whose rows are in it
    number, position, covers   the mark      made       whether the table is ours: then a new version may replace it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import BadStore
from headwater.serve.store import Served

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

MARKS = "headwater_marks"
ROW = "_row"
"""In a table without a key: a number made of all values, by which rows are found."""
LONGEST = 63
LEAST = 15_00_00
"""The first PostgreSQL whose unique indexes can take nulls as equal."""

_TYPES: tuple[tuple[pa.DataType, str, tuple[str, ...]], ...] = (
    (pa.bool_(), "boolean", ()),
    (pa.int8(), "smallint", ("integer", "bigint", "numeric")),
    (pa.int16(), "smallint", ("integer", "bigint", "numeric")),
    (pa.int32(), "integer", ("bigint", "numeric")),
    (pa.int64(), "bigint", ("numeric",)),
    (pa.uint8(), "smallint", ("integer", "bigint", "numeric")),
    (pa.uint16(), "integer", ("bigint", "numeric")),
    (pa.uint32(), "bigint", ("numeric",)),
    (pa.uint64(), "numeric", ()),
    (pa.float32(), "real", ("double precision", "numeric")),
    (pa.float64(), "double precision", ("numeric",)),
    (pa.string(), "text", ("character varying", "uuid", "json", "jsonb")),
    (pa.binary(), "bytea", ()),
    (pa.date32(), "date", ()),
)
"""Arrow's type, what we make of it, and what else a user's own column may be."""


@dataclass(frozen=True)
class Table:
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def prepare(connection: Connection[Any], table: Table, served: Served, *, store: str) -> None:
    """Table and row of marks as the view's version needs them, in one transaction; nothing if they are so already."""
    from psycopg import sql

    if connection.info.server_version < LEAST:
        raise BadStore(store=store, why="the server is older than PostgreSQL 15", do="Serve to a newer one")
    for name in (table.name, *served.schema.names):
        if len(name.encode()) > LONGEST:
            why = f"{name!r} is longer than the {LONGEST} bytes that PostgreSQL's names have"
            raise BadStore(store=store, why=why, do="Give it a shorter one: a table with ?table=, a column with AS")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"headwater {table}",))
        marks = sql.Identifier(table.schema, MARKS)
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (table_name text PRIMARY KEY, version text NOT NULL, number bigint"
                " NOT NULL, position text NOT NULL, covers text NOT NULL, made boolean NOT NULL)"
            ).format(marks)
        )
        found = connection.execute(
            sql.SQL("SELECT version, made FROM {} WHERE table_name = %s FOR UPDATE").format(marks), (table.name,)
        ).fetchone()
        there = _columns(connection, table)
        if found is None and there:
            _check(connection, table, served, there, store=store)
            if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(identifier(table))).fetchone():
                do = "Empty it, or name another with ?table=: its rows will be the view's, and no others"
                raise BadStore(store=store, why=f"table {table} has rows already", do=do)
        elif found is not None and there and found[0] == served.version:
            return
        elif found is not None and there and (not found[1] or _is_alike(connection, table, served, there)):
            if not found[1]:
                _check(connection, table, served, there, store=store)
            connection.execute(sql.SQL("DELETE FROM {}").format(identifier(table)))
        else:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(identifier(table)))
            connection.execute(_create(table, served))
            keys = sql.SQL(", ").join(map(sql.Identifier, served.key or (ROW,)))
            unique = sql.SQL("UNIQUE " if served.key else "")
            nulls = sql.SQL(" NULLS NOT DISTINCT" if served.key else "")
            connection.execute(sql.SQL("CREATE {}INDEX ON {} ({}){}").format(unique, identifier(table), keys, nulls))
        made = not there or (found is not None and bool(found[1]))
        connection.execute(
            sql.SQL(
                "INSERT INTO {} VALUES (%s, %s, 0, '', '', %s) ON CONFLICT (table_name)"
                " DO UPDATE SET version = EXCLUDED.version, number = 0, position = '', covers = ''"
            ).format(marks),
            (table.name, served.version, made),
        )


def identifier(table: Table) -> Composed:
    from psycopg import sql

    return sql.Composed([sql.Identifier(table.schema, table.name)])


def type_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return next((ours for arrow, ours, _ in _TYPES if arrow == kind), "jsonb")


def _create(table: Table, served: Served) -> Composed:
    from psycopg import sql

    columns = [
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(type_of(field.type))) for field in served.schema
    ]
    if not served.key:
        columns.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(ROW)))
    return sql.SQL("CREATE TABLE {} ({})").format(identifier(table), sql.SQL(", ").join(columns))


def _columns(connection: Connection[Any], table: Table) -> dict[str, tuple[str, bool]]:
    """The type of each column, and whether rows may leave it out; empty if there is no such table."""
    rows = connection.execute(
        "SELECT column_name, data_type, is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'"
        " OR is_generated = 'ALWAYS' FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
        (table.schema, table.name),
    ).fetchall()
    return {name: (kind, optional) for name, kind, optional in rows}


def _check(
    connection: Connection[Any], table: Table, served: Served, there: dict[str, tuple[str, bool]], *, store: str
) -> None:
    """Whether the view's rows fit into the user's own table."""

    def refused(why: str, do: str) -> BadStore:
        return BadStore(store=store, why=f"table {table} {why}", do=do)

    if not served.key:
        raise refused(
            f"is not ours, and the rows of view {served.view!r} have no key", "Name a table that is not there yet"
        )
    for field in served.schema:
        ours = type_of(field.type)
        if field.name not in there:
            raise refused(f"has no column {field.name!r}", f'Run: ALTER TABLE {table} ADD COLUMN "{field.name}" {ours}')
        fits = next((also for arrow, _, also in _TYPES if arrow == field.type), ("json",))
        if there[field.name][0] not in (ours.partition("(")[0], *fits):
            raise refused(f"has {field.name!r} as {there[field.name][0]}", f"The view's rows need {ours} there")
    for name, (_, optional) in there.items():
        if name not in served.schema.names and not optional:
            raise refused(
                f"wants a value for {name!r}, which the view does not have", "Give it a default, or let it be null"
            )
    if sorted(served.key) not in _unique(connection, table):
        listed = ", ".join(f'"{name}"' for name in served.key)
        raise refused(
            f"has no unique index on the view's key ({', '.join(served.key)})",
            f"Run: CREATE UNIQUE INDEX ON {table} ({listed}) NULLS NOT DISTINCT",
        )


def _is_alike(connection: Connection[Any], table: Table, served: Served, there: dict[str, tuple[str, bool]]) -> bool:
    """Whether a table that we made for another version does for this one: then what refers to it can stay."""
    wanted = {field.name: type_of(field.type).partition("(")[0] for field in served.schema}
    if not served.key:
        wanted[ROW] = "bigint"
    decimal = any(pa.types.is_decimal(field.type) for field in served.schema)
    keys = [sorted(served.key)] if served.key else []
    return (
        not decimal
        and {name: kind for name, (kind, _) in there.items()} == wanted
        and _unique(connection, table) == keys
    )


def _unique(connection: Connection[Any], table: Table) -> list[list[str]]:
    """The columns of each unique index, in alphabetical order."""
    rows = connection.execute(
        "SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i JOIN pg_attribute a"
        " ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid ="
        " (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
        " AND c.relname = %s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
        (table.schema, table.name),
    ).fetchall()
    return [sorted(names) for (names,) in rows]
