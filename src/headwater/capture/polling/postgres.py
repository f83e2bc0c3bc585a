"""Tables of a PostgreSQL server, polled by COPY: values are read exactly as the stream's are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.polling.capture import Mark
from headwater.capture.postgres.connection import connect, connect_low, quoted, shown, translated
from headwater.capture.postgres.copying import copied
from headwater.capture.postgres.frames import split_copied
from headwater.capture.postgres.rows import batch_of
from headwater.capture.postgres.tables import Table, describe
from headwater.capture.spec import CaptureSpec
from headwater.errors import SourceRefused
from headwater.log.spec import TopicSpec

INTEGERS = (20, 21, 23)
TIMES = {1082: "date", 1114: "timestamp", 1184: "timestamptz"}


class PostgresPolled:
    def __init__(self, spec: CaptureSpec, column: str) -> None:
        self._spec = spec
        self._column = column
        self._tables: dict[str, Table] = {}

    def specs(self) -> dict[str, TopicSpec]:
        url = self._spec.url
        try:
            with closing(connect(url)) as connection:
                tables = {name: describe(connection, url, name, topic) for name, topic in self._spec.tables.items()}
        except psycopg.Error as error:
            raise translated(error, url) from error
        for table in tables.values():
            self._kind(table)
        self._tables = tables
        return {name: table.spec(partitions=self._spec.settings.partitions) for name, table in tables.items()}

    def newer(self, table: str, spec: TopicSpec, mark: Mark | None) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        known = self._tables[table]
        names = ", ".join(quoted(column.name) for column in known.columns)
        statement = f"COPY (SELECT {names} FROM {known.sql_name} WHERE {self._condition(known, mark)}) TO STDOUT"
        handle = connect_low(self._spec.url)
        try:
            for data, starts, ends in copied(handle, statement, source=shown(self._spec.url)):
                places, lengths = split_copied(data, starts, ends, len(known.columns))
                batch = batch_of(known, spec, data, places, lengths).select(spec.schema.names)
                yield batch, _greatest(batch.column(self._column))
        finally:
            handle.finish()

    def _condition(self, table: Table, mark: Mark | None) -> str:
        name, kind, overlap = quoted(self._column), self._kind(table), self._spec.settings.overlap
        if mark is None:
            return f"{name} IS NOT NULL"
        if kind in INTEGERS:
            return f"{name} >= {int(mark) - int(overlap)}"
        moment = datetime.fromisoformat(str(mark)).isoformat()
        return f"{name} >= '{moment}'::{TIMES[kind]} - interval '{overlap:f} seconds'"

    def _kind(self, table: Table) -> int:
        for column in table.columns:
            if column.name == self._column and (column.oid in INTEGERS or column.oid in TIMES):
                return column.oid
        name = quoted(self._column)
        raise SourceRefused(
            source=shown(self._spec.url),
            why=f"table {table.name!r} has no column {self._column!r} of times or whole numbers to poll by",
            statement=f"ALTER TABLE {table.sql_name} ADD COLUMN {name} timestamptz NOT NULL DEFAULT now();"
            "  -- and a trigger that sets it on UPDATE, and an index",
        )


def _greatest(column: pa.Array) -> Mark:
    value: Any = pc.max(column).as_py()
    return int(value) if isinstance(value, int) else str(value.isoformat())
