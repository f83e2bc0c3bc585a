"""How a table of PostgreSQL is compared with its topic."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
from psycopg import pq

from headwater.capture import comparing
from headwater.capture.appender import Appender
from headwater.capture.comparing import Found
from headwater.capture.outbox import Outbox
from headwater.capture.position import lsn_of
from headwater.capture.postgres.changes import Changes
from headwater.capture.postgres.connection import Connection, connect_low, shown
from headwater.capture.postgres.copying import copied
from headwater.capture.postgres.frames import split_copied
from headwater.capture.postgres.overlap import Overlap, Seen, overlaps_in
from headwater.capture.postgres.ranges import ranges_of, rows_of
from headwater.capture.postgres.relations import Relations
from headwater.capture.postgres.rows import batch_of
from headwater.capture.postgres.snapshot import copy_statement
from headwater.capture.postgres.tables import Table, describe
from headwater.capture.ranges import Range
from headwater.errors import SourceLost

SNAPSHOT = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"


class Comparing(comparing.Comparing[Table]):
    """Its snapshots are of now: one that has not seen all that is appended is not used."""

    def __init__(
        self,
        url: str,
        connection: Connection,
        appender: Appender,
        relations: Relations,
        changes: Changes,
        outbox: Outbox | None,
    ) -> None:
        super().__init__(appender, outbox)
        self._url = url
        self._connection = connection
        self._relations = relations
        self._changes = changes

    def ranges(self, table: Table) -> list[Range]:
        return ranges_of(self._connection, table, rows_of(self._connection, table))

    def leave_out(self) -> None:
        self._relations.leave_out(overlaps_in(self._appender.state))

    def read(self, table: Table, within: Range) -> Found | None:
        table = describe(self._connection, self._url, table.name, table.topic)
        with closing(_Low(self._url)) as low:
            low.ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            seen, here = low.ask(SNAPSHOT)
            if not Seen.parse(seen).shows(np.array(self._changes.recent, np.int64)).all():
                return None  # a commit that we have heard of is not visible to others yet: in a moment it is
            spec = self._relations.renewed(table).spec
            tables = [spec.schema.empty_table()]
            for data, starts, ends in copied(low.handle, copy_statement(table, within), source=shown(self._url)):
                places, lengths = split_copied(data, starts, ends, len(table.columns))
                batch = batch_of(table, spec, data, places, lengths)
                tables.append(pa.Table.from_batches([batch.select(spec.schema.names)]))
            overlap = Overlap(table.name, within, seen, lsn_of(here))
            return Found(spec, pa.concat_tables(tables), overlap.as_json())


class _Low:
    def __init__(self, url: str) -> None:
        self.handle: pq.abc.PGconn = connect_low(url)
        self._url = url

    def ask(self, statement: str) -> list[str]:
        result = self.handle.exec_(statement.encode())
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise SourceLost(source=shown(self._url), why=result.get_error_message())
        return [(result.get_value(0, place) or b"").decode() for place in range(result.nfields)]

    def close(self) -> None:
        self.handle.finish()
