"""The tables to capture, as the database describes them: columns, key, and whether their rows can be captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headwater.capture.mysql.connection import Connection, ask, quoted, settings_of, shown, user_of
from headwater.capture.mysql.types import Column, described
from headwater.errors import SourceRefused
from headwater.log.spec import TopicSpec
from headwater.records import schema_of

TABLE = """
    SELECT table_schema, table_name, table_type, engine FROM information_schema.tables
    WHERE table_schema = %s AND table_name = %s"""
COLUMNS = """
    SELECT column_name, data_type, column_type, character_set_name, extra FROM information_schema.columns
    WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
KEY = """
    SELECT column_name FROM information_schema.statistics
    WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index"""
CASCADES = """
    SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints
    WHERE constraint_schema = %s AND table_name = %s
      AND (delete_rule NOT IN ('RESTRICT', 'NO ACTION') OR update_rule NOT IN ('RESTRICT', 'NO ACTION'))"""
PATTERN = """
    SELECT table_schema, table_name FROM information_schema.tables
    WHERE table_schema = %s AND table_name LIKE %s AND table_type = 'BASE TABLE' ORDER BY table_name"""


@dataclass(frozen=True)
class Table:
    """`name` is what the user calls it and, unless told otherwise, what its topic is called."""

    name: str
    topic: str
    database: str
    relation: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    generated: tuple[str, ...] = ()
    """Columns that are told, but not captured."""

    @property
    def sql_name(self) -> str:
        return quoted(self.database, self.relation)

    @cached_property
    def arrow(self) -> pa.Schema:
        return schema_of(pa.schema([(column.name, column.kind) for column in self.columns]))

    def spec(self, *, partitions: int) -> TopicSpec:
        """Weighted: the binlog tells old rows in full."""
        return TopicSpec(self.topic, self.arrow, key=self.key, kind="table", partitions=partitions)


def split_name(name: str, url: str) -> tuple[str, str]:
    """`users` is in the database of the address, `sales.orders` in `sales`."""
    database, dot, relation = name.rpartition(".")
    return (database, relation) if dot else (settings_of(url)["database"], name)


def expanded(connection: Connection, url: str, tables: Mapping[str, str]) -> dict[str, str]:
    """Tables and their topics, patterns such as `sales.*` replaced by the tables that they name now."""
    found: dict[str, str] = {}
    for name, topic in tables.items():
        if "*" not in name:
            found[name] = topic
            continue
        database, relation = split_name(name, url)
        like = relation.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%").replace("*", "%")
        for of, each in ask(connection, PATTERN, (database, like)):
            told = each if of == settings_of(url)["database"] else f"{of}.{each}"
            found.setdefault(told, told)
    return found


def describe(connection: Connection, url: str, name: str, topic: str) -> Table:
    """The table as it is now, or `SourceRefused` with what to run."""
    place = split_name(name, url)
    written = quoted(*place)

    def refused(why: str, statement: str) -> SourceRefused:
        return SourceRefused(source=shown(url), why=why, statement=statement)

    rows = ask(connection, TABLE, place)
    if not rows:
        why = f"there is no table {name!r}, or {user_of(url)} may not see it"
        raise refused(why, f"GRANT SELECT ON {written} TO {user_of(url)};  -- or CREATE TABLE {written} (...);")
    database, relation, kind, engine = rows[0]
    if kind != "BASE TABLE":
        what = f"{name!r} is no plain table but a {kind}: its changes are not told row by row"
        raise refused(what, f"ALTER TABLE {written} DROP SYSTEM VERSIONING;  -- or capture the tables of a view")
    if engine != "InnoDB":
        what = f"table {name!r} is kept by {engine}, which has no snapshots to read from"
        raise refused(what, f"ALTER TABLE {written} ENGINE = InnoDB;")
    for constraint, deleted, updated in ask(connection, CASCADES, place):
        why = f"foreign key {constraint!r} of table {name!r} is ON DELETE {deleted} ON UPDATE {updated}"
        mended = f"ALTER TABLE {written} DROP FOREIGN KEY {quoted(constraint)};  -- and let the application do it"
        raise refused(f"{why}: the server changes its rows without a word in the binlog", mended)
    key = tuple(column for (column,) in ask(connection, KEY, place))
    if not key:
        what = f"table {name!r} has no primary key: its rows cannot be told apart"
        raise refused(what, f"ALTER TABLE {written} ADD PRIMARY KEY (...);")
    columns, generated = [], []
    for column, data_type, column_type, charset, extra in ask(connection, COLUMNS, place):
        if "GENERATED" in extra.upper().replace("DEFAULT_GENERATED", ""):
            generated.append(column)
            continue
        found = described(column, data_type, column_type, charset, key=column in key)
        if not found.captured or "COMPRESSED" in column_type:
            what = f"column {column!r} of table {name!r} is {column_type} {charset or ''}, which cannot be captured"
            raise refused(what, f"ALTER TABLE {written} MODIFY {quoted(column)} ...;  -- a type of docs/capture.md")
        columns.append(found)
    if any(column not in {each.name for each in columns} for column in key):
        raise refused(f"the key of table {name!r} has a generated column", f"ALTER TABLE {written} ...;")
    return Table(name, topic, database, relation, tuple(columns), key, tuple(generated))
