"""What the stream says of a table's columns, against what its topic has: columns may come, types widen, that is all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.capture.altering import altered_topic, column_gone
from headwater.capture.compiled import Ints
from headwater.capture.postgres.changes import Known
from headwater.capture.postgres.connection import Connection
from headwater.capture.postgres.overlap import Overlap, Seen
from headwater.capture.postgres.tables import COLUMNS, FULL, Relation, Table, altered
from headwater.errors import TableChanged
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec

FILLED = """
    SELECT bool_or(atthasdef OR atthasmissing OR attidentity <> '') FROM pg_attribute
    WHERE attrelid = %s AND attname = ANY(%s)"""


class Grown(Exception):
    """A table has a new column with values in its old rows, of which the stream tells nothing: it must be compared with
    its topic before the stream goes on."""

    def __init__(self, table: Table) -> None:
        self.table = table


class Relations:
    def __init__(self, log: Log, connection: Connection, tables: Mapping[str, Table]) -> None:
        self._log = log
        self._connection = connection
        self._known = {
            (table.schema, table.relation): Known(table, log.topic(table.topic)) for table in tables.values()
        }
        self._names = {table.oid: (table.schema, table.relation) for table in tables.values()}

    def of(self, table: Table) -> Known:
        return self._known[table.schema, table.relation]

    def renewed(self, table: Table) -> Known:
        """Its topic has all columns that the table has by now; the stream is read as it tells."""
        known = self.of(table)
        known.spec = self._evolved(table, known.spec)
        return known

    def leave_out(self, overlaps: Sequence[Overlap]) -> None:
        """What these snapshots have shown is left out of the stream from here on."""
        for known in self._known.values():
            known.overlaps = [each for each in overlaps if each.table == known.table.name]

    def learn(self, relation: Relation, transaction: Ints) -> Known | None:
        """As the changes that follow are told; None if they are not captured: of another table, or of a time in between
        that the table has been compared since."""
        try:
            return self._learn(relation)
        except TableChanged:
            before = self._names.get(relation.oid, (relation.schema, relation.name))
            overlaps = self._known[before].overlaps if before in self._known else []
            if overlaps and all(Seen.parse(each.seen).shows(transaction).all() for each in overlaps):
                return None
            raise

    def _learn(self, relation: Relation) -> Known | None:
        name = (relation.schema, relation.name)
        known = self._known.get(name)
        if known is None:
            before = self._names.get(relation.oid)
            if before is not None:
                self._renamed(self._known[before].table, ".".join(name))
            return None
        self._names[relation.oid] = name
        table = altered(known.table, self._connection, relation)
        if known.spec.weighted and relation.identity != FULL:
            raise TableChanged(
                table=table.name,
                topic=table.topic,
                why="it no longer tells old rows in full",
                do=f"Run: ALTER TABLE {table.sql_name} REPLICA IDENTITY FULL;  -- then compare what was missed: "
                f"headwater capture resnapshot NAME {table.name}",
            )
        if self._grown(table, known.spec):
            raise Grown(table)
        known.table, known.spec = table, self._evolved(table, known.spec)
        return known

    def _grown(self, table: Table, spec: TopicSpec) -> bool:
        new = [column.name for column in table.columns if column.name not in spec.schema.names]
        found = self._connection.execute(FILLED, (table.oid, new)).fetchone() if new else None
        return found is not None and bool(found[0])

    def _evolved(self, table: Table, spec: TopicSpec) -> TopicSpec:
        told = {column.name: column.kind for column in table.columns}
        gone = [name for name in spec.schema.names if name not in told]
        if gone:
            self._refuse_gone(table, spec, gone)
        merged = [*((name, told.get(name, spec.schema.field(name).type)) for name in spec.schema.names)]
        merged += [(name, kind) for name, kind in told.items() if name not in spec.schema.names]
        return altered_topic(
            self._log,
            spec,
            merged,
            table=table.name,
            retype=lambda column: f"ALTER TABLE {table.sql_name} ALTER {column} TYPE ...",
        )

    def _refuse_gone(self, table: Table, spec: TopicSpec, gone: list[str]) -> None:
        """Columns that the database still has are missing in changes from before they were added: those are as told.
        But not if there are others that the topic does not know: then it is a rename, or has been one."""
        now = {name for name, _, _ in self._connection.execute(COLUMNS, (table.oid,)).fetchall()}
        new = [column.name for column in table.columns if column.name not in spec.schema.names]
        missing = gone if new else [name for name in gone if name not in now]
        if missing:
            raise column_gone(table.name, table.sql_name, table.topic, missing[0], new)

    def _renamed(self, table: Table, now: str) -> None:
        raise TableChanged(
            table=table.name,
            topic=table.topic,
            why=f"it was renamed to {now!r}",
            do=f"Rename it back, or say tables={{{now.removeprefix('public.')!r}: {table.topic!r}}}",
        )
