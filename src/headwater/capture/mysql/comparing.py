"""How a table of MySQL or MariaDB is compared with its topic: also whenever it was altered, for the binlog does not
tell what that has made of its rows."""

from __future__ import annotations

import pyarrow as pa
import pymysql

from headwater.capture import comparing
from headwater.capture.appender import Appender
from headwater.capture.comparing import Found
from headwater.capture.mysql.binlog import Server, close, open_snapshots
from headwater.capture.mysql.connection import Connection, translated
from headwater.capture.mysql.copying import copied
from headwater.capture.mysql.overlap import Overlap, overlaps_in
from headwater.capture.mysql.relations import Relations
from headwater.capture.mysql.rows import selected
from headwater.capture.mysql.snapshot import ranges_of, rows_of, select_statement
from headwater.capture.mysql.tables import Table
from headwater.capture.outbox import Outbox
from headwater.capture.ranges import Range


class Comparing(comparing.Comparing[Table]):
    """Its snapshots are of a known place in the binlog, at or after all that is appended."""

    def __init__(
        self,
        url: str,
        server: Server,
        connection: Connection,
        appender: Appender,
        relations: Relations,
        outbox: Outbox | None,
    ) -> None:
        super().__init__(appender, outbox)
        self._url = url
        self._server = server
        self._connection = connection
        self._relations = relations

    def ranges(self, table: Table) -> list[Range]:
        now = self._relations.renewed(table).table
        return ranges_of(self._connection, now, rows_of(self._connection, now))

    def leave_out(self) -> None:
        self._relations.leave_out(overlaps_in(self._appender.state))

    def read(self, table: Table, within: Range) -> Found:
        """A table that is altered right now is read the next time."""
        known = self._relations.renewed(table)
        opened = open_snapshots(self._url, self._server, 1)
        try:
            connection, seen = opened[0]
            spec, tables = known.spec, [known.spec.schema.empty_table()]
            for data, rows in copied(connection, select_statement(known.table, within), url=self._url):
                batch = selected(known.table, spec, data, rows)
                tables.append(pa.Table.from_batches([batch.select(spec.schema.names)]))
            return Found(spec, pa.concat_tables(tables), Overlap(table.name, within, seen).as_json())
        except pymysql.MySQLError as error:
            raise translated(error, self._url) from error
        finally:
            close(opened)
