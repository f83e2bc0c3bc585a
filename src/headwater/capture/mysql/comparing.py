"""A table is compared with its topic, a range of its key at a time; what differs is appended.

So after a gap, when somebody asks for it, and whenever a table was altered.
    1  A snapshot is taken. It is of a known place in the binlog, at or after all that is appended.
    2  The range is read from it, and compared with the rows that the topic holds.
    3  The differences are appended, with the overlap: the stream leaves out what this snapshot has shown in this range.
So the topic is exact after every append, and the stream waits only as long as a range takes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql

from headwater.capture.appender import Appender
from headwater.capture.current import rows_in
from headwater.capture.differences import differences
from headwater.capture.mysql.binlog import Server, close, open_snapshots
from headwater.capture.mysql.connection import Connection, translated
from headwater.capture.mysql.copying import copied
from headwater.capture.mysql.overlap import Overlap
from headwater.capture.mysql.relations import Known, Relations
from headwater.capture.mysql.rows import selected
from headwater.capture.mysql.snapshot import ranges_of, rows_of, select_statement
from headwater.capture.mysql.tables import Table
from headwater.capture.outbox import Outbox
from headwater.capture.ranges import Range


class Comparing:
    """The tables that are asked for, a range at each `step`."""

    def __init__(
        self,
        url: str,
        server: Server,
        connection: Connection,
        appender: Appender,
        relations: Relations,
        outbox: Outbox | None,
    ) -> None:
        self._url = url
        self._server = server
        self._connection = connection
        self._appender = appender
        self._relations = relations
        self._outbox = outbox
        self._left: list[tuple[str, Range]] = []

    @property
    def busy(self) -> bool:
        return bool(self._left)

    def begin(self, tables: dict[str, Table]) -> None:
        """Take up what was asked for, also by an earlier run that did not end it."""
        state = self._appender.state
        state.refresh()
        asked = state.get("asked") or []
        wanted = dict.fromkeys([*(state.get("comparing") or []), *(list(tables) if "*" in asked else asked)])
        names = [name for name in wanted if name in tables]
        if asked:
            self._appender.append([], asked=None, comparing=names)
        planned = {name for name, _ in self._left}
        for name in names:
            if name not in planned:
                table = self._relations.renewed(tables[name]).table
                self._left += [
                    (name, each) for each in ranges_of(self._connection, table, rows_of(self._connection, table))
                ]

    def step(self, tables: dict[str, Table]) -> None:
        """The next range, if there is one."""
        if not self._left:
            return
        name, within = self._left[0]
        known = self._relations.renewed(tables[name])
        held, seen = self._read(known, within)
        self._left.pop(0)
        spec = known.spec
        told = rows_in(self._appender.log, spec, lambda rows: pa.array(within.holds(rows.column(spec.key[0]))))
        parts = [part for batch in differences(spec, told, held) for part in self._appender.stage(spec, batch)]
        if self._outbox is not None and name == self._outbox.table:
            parts += [part for batch in held.to_batches() for part in self._outbox.parts(batch)]
        overlaps = [Overlap.from_json(each) for each in self._appender.state.get("overlaps") or []]
        overlaps.append(Overlap(name, within, seen))
        state: dict[str, Any] = {"overlaps": [each.as_json() for each in overlaps]}
        if not any(left == name for left, _ in self._left):
            state["comparing"] = [each for each in self._appender.state.get("comparing") or [] if each != name]
            state["tables"] = sorted({*(self._appender.state.get("tables") or []), name})
        self._appender.append(parts, **state)
        self._relations.leave_out(overlaps)

    def _read(self, known: Known, within: Range) -> tuple[pa.Table, int]:
        """Steps 1 and 2. A table that is altered right now is read the next time."""
        opened = open_snapshots(self._url, self._server, 1)
        try:
            connection, seen = opened[0]
            spec, tables = known.spec, [known.spec.schema.empty_table()]
            for data, rows in copied(connection, select_statement(known.table, within), url=self._url):
                batch = selected(known.table, spec, data, rows)
                tables.append(pa.Table.from_batches([batch.select(spec.schema.names)]))
            return pa.concat_tables(tables), seen
        except pymysql.MySQLError as error:
            raise translated(error, self._url) from error
        finally:
            close(opened)
