"""Tables of a SQLite file, polled by a column of whole numbers, or of times as SQLite writes them: texts that sort."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.capture.polling.capture import Mark
from headwater.capture.spec import CaptureSpec
from headwater.capture.sqlite.tables import Table, describe, quoted
from headwater.errors import SourceLost, SourceRefused
from headwater.log.spec import TopicSpec

SCHEME = "sqlite:"
BUSY_S = 10.0
ROWS = 10_000


class SqlitePolled:
    def __init__(self, spec: CaptureSpec, column: str) -> None:
        self._spec = spec
        self._column = column
        self._path = Path(spec.url.removeprefix(SCHEME))
        self._tables: dict[str, Table] = {}

    def specs(self) -> dict[str, TopicSpec]:
        if not self._path.is_file():
            raise SourceRefused(source=self._spec.url, why="there is no such file", statement=f"sqlite3 {self._path}")
        with closing(self._open()) as connection:
            tables = {
                name: describe(connection, self._spec.url, name, topic) for name, topic in self._spec.tables.items()
            }
        for table in tables.values():
            if self._column not in table.names:
                raise SourceRefused(
                    source=self._spec.url,
                    why=f"table {table.name!r} has no column {self._column!r} to poll by",
                    statement=f"ALTER TABLE {quoted(table.name)} ADD COLUMN {quoted(self._column)} INTEGER;",
                )
        self._tables = tables
        return {name: table.spec(partitions=self._spec.settings.partitions) for name, table in tables.items()}

    def newer(self, table: str, spec: TopicSpec, mark: Mark | None) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        known, name = self._tables[table], quoted(self._column)
        place = known.names.index(self._column)
        names = ", ".join(quoted(each) for each in known.names)
        query = f"SELECT {names} FROM {quoted(known.name)} WHERE {name} IS NOT NULL"
        given = () if mark is None else (_before(mark, self._spec.settings.overlap),)
        try:
            with closing(self._open()) as connection:
                cursor = connection.execute(query + (f" AND {name} >= ?" if given else ""), given)
                while rows := cursor.fetchmany(ROWS):
                    batch = known.batch(spec, rows, [False] * len(rows))
                    yield batch.select(spec.schema.names), self._greatest(known, [row[place] for row in rows])
        except sqlite3.Error as error:
            raise SourceLost(source=self._spec.url, why=str(error)) from error

    def _greatest(self, table: Table, values: list[Any]) -> Mark:
        numbers = all(isinstance(value, int | float) for value in values)
        if numbers or all(isinstance(value, str) and _is_time(value) for value in values):
            greatest: Mark = max(values)
            return greatest
        raise SourceRefused(
            source=self._spec.url,
            why=f"column {self._column!r} of table {table.name!r} has values that are neither numbers nor times",
            statement=f"SELECT * FROM {quoted(table.name)} WHERE datetime({quoted(self._column)}) IS NULL;",
        )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _before(mark: Mark, overlap: float) -> Mark:
    """A text stays as long as it is: so it sorts among the others."""
    if not isinstance(mark, str):
        return mark - overlap
    then = datetime.fromisoformat(mark) - timedelta(seconds=overlap)
    return then.isoformat(sep=mark[10:11] or " ")[: len(mark)]
