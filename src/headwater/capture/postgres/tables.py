"""The tables to capture, as the database describes them: columns, key, and what it tells of old rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from headwater.capture.postgres.connection import Connection, quoted, shown
from headwater.capture.postgres.types import Column
from headwater.errors import SourceRefused
from headwater.log.spec import TopicSpec
from headwater.records import schema_of

FULL, NOTHING = "f", "n"

TABLE = """
    SELECT c.oid, c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')"""
COLUMNS = """
    SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE a.atttypid END,
      CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"""
KEY = """
    SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s AND CASE %s WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.place"""
BASE = """
    SELECT CASE typtype WHEN 'd' THEN typbasetype ELSE oid END, CASE typtype WHEN 'd' THEN typtypmod END
    FROM pg_type WHERE oid = %s"""
PATTERN = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname LIKE %s AND c.relkind IN ('r', 'p')
      AND NOT c.relispartition ORDER BY c.relname"""


@dataclass(frozen=True)
class Table:
    """`name` is what the user calls it and, unless told otherwise, what its topic is called."""

    name: str
    topic: str
    schema: str
    relation: str
    oid: int
    identity: str
    """PostgreSQL's letter: d the key, f the full row, i an index, n nothing."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def sql_name(self) -> str:
        return quoted(self.schema, self.relation)

    @cached_property
    def arrow(self) -> pa.Schema:
        return schema_of(pa.schema([(column.name, column.kind) for column in self.columns]))

    def spec(self, *, partitions: int) -> TopicSpec:
        """Weighted if the database tells old rows in full, else an upsert table."""
        return TopicSpec(
            self.topic,
            self.arrow,
            key=self.key,
            kind="table",
            upsert=self.identity != FULL,
            partitions=partitions,
        )


def split_name(name: str) -> tuple[str, str]:
    """`users` is in the schema `public`, `sales.orders` in `sales`."""
    schema, dot, relation = name.rpartition(".")
    return (schema, relation) if dot else ("public", name)


def expanded(connection: Connection, tables: Mapping[str, str]) -> dict[str, str]:
    """Tables and their topics, patterns such as `sales.*` replaced by the tables that they name now."""
    found: dict[str, str] = {}
    for name, topic in tables.items():
        if "*" not in name:
            found[name] = topic
            continue
        schema, relation = split_name(name)
        like = relation.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%").replace("*", "%")
        for of, each in connection.execute(PATTERN, (schema, like)).fetchall():
            told = each if of == "public" else f"{of}.{each}"
            found.setdefault(told, told)
    return found


def describe(connection: Connection, url: str, name: str, topic: str) -> Table:
    """The table as it is now, or `SourceRefused` with what to run."""
    schema, relation = split_name(name)
    row: Any = connection.execute(TABLE, (schema, relation)).fetchone()
    written = quoted(schema, relation)
    if row is None:
        raise SourceRefused(
            source=shown(url), why=f"there is no table {name!r}", statement=f"CREATE TABLE {written} (...);"
        )
    oid, identity = row
    key = tuple(column for (column,) in connection.execute(KEY, (oid, identity)).fetchall())
    if not key or identity == NOTHING:
        raise SourceRefused(
            source=shown(url),
            why=f"table {name!r} has no primary key, or REPLICA IDENTITY NOTHING: its rows cannot be told apart",
            statement=f"ALTER TABLE {written} ADD PRIMARY KEY (...);  -- or REPLICA IDENTITY USING INDEX ...;",
        )
    columns = tuple(
        Column(column, kind, modifier, key=column in key)
        for column, kind, modifier in connection.execute(COLUMNS, (oid,)).fetchall()
    )
    return Table(name, topic, schema, relation, oid, identity, columns, key)


def altered(table: Table, connection: Connection, relation: Relation) -> Table:
    """The table as a relation message describes it: later than we know it, or as it was when its changes were made."""
    columns = []
    for column in relation.columns:
        base: Any = connection.execute(BASE, (column.oid,)).fetchone() or (column.oid, None)
        modifier = column.modifier if base[1] is None else base[1]
        columns.append(Column(column.name, base[0], modifier, key=column.name in table.key))
    return replace(table, oid=relation.oid, identity=relation.identity, columns=tuple(columns))


@dataclass(frozen=True)
class Relation:
    """What a relation message says."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]


def read_relation(body: bytes) -> Relation:
    """'R', int32 oid, schema, name, identity, int16 columns; each: flags, name, int32 type, int32 modifier."""
    oid = int.from_bytes(body[1:5], "big")
    schema, name, rest = body[5:].split(b"\0", 2)
    identity, count, at = chr(rest[0]), int.from_bytes(rest[1:3], "big"), 3
    columns = []
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        kind = int.from_bytes(rest[end + 1 : end + 5], "big")
        modifier = int.from_bytes(rest[end + 5 : end + 9], "big", signed=True)
        columns.append(Column(rest[at + 1 : end].decode(), kind, modifier))
        at = end + 9
    return Relation(oid, schema.decode() or "pg_catalog", name.decode(), identity, tuple(columns))
