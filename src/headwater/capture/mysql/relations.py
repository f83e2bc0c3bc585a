"""What the stream says of a table's columns, against what its topic has: columns may come, types widen, that is all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.capture.altering import altered_topic, column_gone, undo
from headwater.capture.mysql.connection import Connection
from headwater.capture.mysql.layout import Layout, layout_of, left_out
from headwater.capture.mysql.overlap import Overlap, all_shown_until
from headwater.capture.mysql.statements import TableName
from headwater.capture.mysql.tables import Table, describe
from headwater.errors import SourceRefused, TableChanged
from headwater.log.evolution import widens
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec


@dataclass
class Known:
    """A table as it was described last, and its topic."""

    table: Table
    spec: TopicSpec
    overlaps: list[Overlap] = field(default_factory=list)
    shown_until: int = 0
    """Up to here all of its changes have been shown by them."""


class Relations:
    def __init__(self, log: Log, connection: Connection, url: str, tables: Mapping[str, Table]) -> None:
        self._log = log
        self._connection = connection
        self._url = url
        self._known = {
            (table.database, table.relation): Known(table, log.topic(table.topic)) for table in tables.values()
        }

    @property
    def captured(self) -> list[TableName]:
        return list(self._known)

    def of(self, name: TableName) -> Known | None:
        return self._known.get(name)

    def leave_out(self, overlaps: Sequence[Overlap]) -> None:
        """What these snapshots have shown is left out of the stream from here on."""
        for known in self._known.values():
            known.overlaps = [each for each in overlaps if each.table == known.table.name]
            known.shown_until = all_shown_until(known.overlaps)

    def renewed(self, table: Table) -> Known:
        """The table as it is now, and its topic with all columns that it has."""
        known = self._known[table.database, table.relation]
        try:
            now = describe(self._connection, self._url, table.name, table.topic)
        except SourceRefused as refused:
            raise TableChanged(
                table=table.name, topic=table.topic, why=refused.why, do=undo(table.name, refused.statement)
            ) from None
        if now.key != known.spec.key:
            raise TableChanged(
                table=table.name,
                topic=table.topic,
                why=f"its primary key is ({', '.join(now.key)}) now, and was ({', '.join(known.spec.key)})",
                do=undo(table.name, f"ALTER TABLE {table.sql_name} DROP PRIMARY KEY, ADD PRIMARY KEY (...);"),
            )
        told = {column.name: column.kind for column in now.columns}
        gone = [name for name in known.spec.schema.names if name not in told]
        if gone:
            new = [name for name in told if name not in known.spec.schema.names]
            raise column_gone(table.name, table.sql_name, table.topic, gone[0], new)
        known.table, known.spec = now, self._evolved(now, known.spec, told)
        return known

    def learn(self, told: Any, known: Known) -> Layout:
        """As the images that follow are made. A column that the topic has and the images have not is null in them: it
        was added later, and the table is compared when the stream comes to that."""
        layout = left_out(layout_of(told, known.table), set(known.table.generated))
        columns = {column.name: column.kind for column in layout.columns if column is not None}
        known.spec = self._evolved(known.table, known.spec, columns)
        return layout

    def _evolved(self, table: Table, spec: TopicSpec, told: Mapping[str, pa.DataType]) -> TopicSpec:
        merged = []
        for has in spec.schema:
            kind = told.get(has.name, has.type)
            merged.append((has.name, has.type if widens(kind, has.type) else kind))
        merged += [(name, kind) for name, kind in told.items() if name not in spec.schema.names]
        return altered_topic(
            self._log,
            spec,
            merged,
            table=table.name,
            retype=lambda column: f"ALTER TABLE {table.sql_name} MODIFY {column} ...;",
        )
