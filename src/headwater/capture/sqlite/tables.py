"""The tables to capture, as SQLite describes them, and the values of their columns as Arrow."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headwater.errors import BadRecord, SourceRefused
from headwater.log.spec import TopicSpec
from headwater.records import schema_of

# The first that is in the declared type decides, as SQLite itself finds a column's affinity; else values are text.
KINDS = (
    ("BOOL", pa.bool_()),
    ("INT", pa.int64()),
    ("CHAR", pa.string()),
    ("CLOB", pa.string()),
    ("TEXT", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL", pa.float64()),
    ("FLOA", pa.float64()),
    ("DOUB", pa.float64()),
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Table:
    name: str
    topic: str
    columns: tuple[tuple[str, str], ...]
    """Names and declared types."""
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        return schema_of(pa.schema([(name, kind_of(declared)) for name, declared in self.columns]))

    def spec(self, *, partitions: int) -> TopicSpec:
        return TopicSpec(self.topic, self.arrow, key=self.key, kind="table", upsert=True, partitions=partitions)

    def batch(self, spec: TopicSpec, rows: list[tuple[Any, ...]], deleted: list[bool]) -> pa.RecordBatch:
        """Rows of values in the order of the columns; a tombstone has only its key."""
        columns = []
        for field in spec.schema:
            place = self.names.index(field.name) if field.name in self.names else None
            kept = field.name in self.key
            values = [
                None if place is None or (gone and not kept) else row[place]
                for row, gone in zip(rows, deleted, strict=True)
            ]
            columns.append(self._column(field, values))
        return pa.RecordBatch.from_arrays([*columns, pa.array(deleted, pa.bool_())], schema=spec.stored)

    def _column(self, field: pa.Field, values: list[Any]) -> pa.Array:
        """SQLite keeps any value in any column; a topic does not."""
        if pa.types.is_boolean(field.type):
            values = [bool(value) if value in (0, 1) else value for value in values]
        elif pa.types.is_string(field.type):
            values = [str(value) if isinstance(value, int | float) else value for value in values]
        elif pa.types.is_floating(field.type):
            values = [float(value) if isinstance(value, int) else value for value in values]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadRecord(
                topic=self.topic,
                column=field.name,
                why=f"a value that is not {field.type}, in table {self.name!r} ({error})",
                do=f"Run: SELECT * FROM {quoted(self.name)} WHERE typeof({quoted(field.name)}) <> "
                f"typeof(CAST({quoted(field.name)} AS {dict(self.columns)[field.name]}));  -- and mend these rows",
            ) from None


def kind_of(declared: str) -> pa.DataType:
    return next((kind for part, kind in KINDS if part in declared.upper()), pa.string())


def describe(connection: sqlite3.Connection, source: str, name: str, topic: str) -> Table:
    rows: list[Any] = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
    if not rows:
        raise SourceRefused(
            source=source, why=f"there is no table {name!r}", statement=f"CREATE TABLE {quoted(name)} (...);"
        )
    key = tuple(column for column, _, place in sorted(rows, key=lambda row: row[2]) if place > 0)
    if not key:
        raise SourceRefused(
            source=source,
            why=f"table {name!r} has no primary key: its rows cannot be told apart",
            statement=f"CREATE TABLE ... (id INTEGER PRIMARY KEY, ...);  -- and copy {quoted(name)} into it",
        )
    return Table(name, topic, tuple((column, kind) for column, kind, _ in rows), key)
