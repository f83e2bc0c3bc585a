"""A table compared with its topic while the stream goes on: what differs is appended. Also how a table is read that was
added to a capture later, and how to go on after a gap.

A range of the key at a time, between two transactions of the stream:
    1  A snapshot of now is taken. It has seen all that is appended; and some of what the stream has yet to tell.
    2  The range is read from it, and compared with the rows that the topic holds.
    3  The differences are appended, with the overlap: the stream leaves out what this snapshot has shown in this range.
So the topic is exact after every append, and the stream waits only as long as a range takes.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import pq

from headwater.capture.appender import Appender
from headwater.capture.current import rows_in
from headwater.capture.differences import differences
from headwater.capture.outbox import Outbox
from headwater.capture.position import lsn_of
from headwater.capture.postgres.changes import Changes
from headwater.capture.postgres.connection import Connection, connect_low, shown
from headwater.capture.postgres.copying import copied
from headwater.capture.postgres.frames import split_copied
from headwater.capture.postgres.overlap import Overlap, Seen
from headwater.capture.postgres.ranges import ranges_of, rows_of
from headwater.capture.postgres.relations import Relations
from headwater.capture.postgres.rows import batch_of
from headwater.capture.postgres.snapshot import copy_statement
from headwater.capture.postgres.tables import Table, describe
from headwater.capture.ranges import Range
from headwater.errors import SourceLost

SNAPSHOT = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"


class Comparing:
    """The tables that are asked for, a range at each `step`."""

    def __init__(
        self,
        url: str,
        connection: Connection,
        appender: Appender,
        relations: Relations,
        changes: Changes,
        outbox: Outbox | None,
    ) -> None:
        self._outbox = outbox
        self._url = url
        self._connection = connection
        self._appender = appender
        self._relations = relations
        self._changes = changes
        self._left: list[tuple[str, Range]] = []
        self.differing = 0
        """Records that comparing has appended."""

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
                rows = rows_of(self._connection, tables[name])
                self._left += [(name, each) for each in ranges_of(self._connection, tables[name], rows)]

    def step(self, tables: dict[str, Table]) -> None:
        """The next range, if there is one and a snapshot can be had that has seen all that is appended."""
        if not self._left:
            return
        name, within = self._left[0]
        table = describe(self._connection, self._url, name, tables[name].topic)
        read = self._read(table, within)
        if read is None:
            return
        held, seen, until = read
        self._left.pop(0)
        spec = self._relations.of(table).spec
        told = rows_in(self._appender.log, spec, lambda rows: pa.array(within.holds(rows.column(spec.key[0]))))
        parts = [part for batch in differences(spec, told, held) for part in self._appender.stage(spec, batch)]
        if self._outbox is not None and name == self._outbox.table:
            parts += [part for batch in held.to_batches() for part in self._outbox.parts(batch)]
        known = [Overlap.from_json(each) for each in self._appender.state.get("overlaps") or []]
        overlaps = [*known, Overlap(name, within, seen, until)]
        state: dict[str, Any] = {"overlaps": [each.as_json() for each in overlaps]}
        if not any(left == name for left, _ in self._left):
            state["comparing"] = [each for each in self._appender.state.get("comparing") or [] if each != name]
            state["tables"] = sorted({*(self._appender.state.get("tables") or []), name})
        self._appender.append(parts, **state)
        self._relations.leave_out(overlaps)
        self.differing += sum(part.rows for part in parts)

    def _read(self, table: Table, within: Range) -> tuple[pa.Table, str, int] | None:
        with closing(_Low(self._url)) as low:
            low.ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            seen, here = low.ask(SNAPSHOT)
            if not Seen.parse(seen).shows(np.array(self._changes.recent, np.int64)).all():
                return None  # a commit that we have heard of is not visible to others yet: in a moment it is
            known = self._relations.renewed(table)
            tables = [known.spec.schema.empty_table()]
            for data, starts, ends in copied(low.handle, copy_statement(table, within), source=shown(self._url)):
                places, lengths = split_copied(data, starts, ends, len(table.columns))
                batch = batch_of(table, known.spec, data, places, lengths)
                tables.append(pa.Table.from_batches([batch.select(known.spec.schema.names)]))
            return pa.concat_tables(tables), seen, lsn_of(here)


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
