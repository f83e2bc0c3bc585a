"""Row images of the binlog become parts of topics, many events of a table at a time.

Events come one by one and are only kept; they are decoded together when they are to be appended, or are too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.current import removals
from headwater.capture.mysql.frames import ABSENT, DELETED, INSERTED, UPDATED, count_images, find_fields
from headwater.capture.mysql.layout import Layout
from headwater.capture.mysql.overlap import not_shown
from headwater.capture.mysql.relations import Known, Relations
from headwater.capture.mysql.rows import imaged
from headwater.capture.mysql.statements import TableName
from headwater.capture.mysql.wire import HEADER
from headwater.capture.outbox import Outbox
from headwater.errors import SourceLost, TableChanged
from headwater.log.protocol import Part

TABLE_MAP = 19
ROWS = {23: INSERTED, 24: UPDATED, 25: DELETED, 30: INSERTED, 31: UPDATED, 32: DELETED}
"""What events of these types tell; from 30 on they have more in front."""
SECOND_VERSION = 30
NO_TABLE = b"\xff\xff\xff\0\0\0"
"""The number in an event that only ends a statement."""
ROUND_BYTES = 8 * 1024 * 1024
"""So much is decoded and staged, though its transaction has not ended."""


@dataclass
class _Run:
    """Events of one table, all made alike."""

    known: Known
    layout: Layout
    bodies: list[bytes] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class Changes:
    """Gathers the parts of what is to be one append."""

    def __init__(self, appender: Appender, relations: Relations, outbox: Outbox | None = None) -> None:
        self._appender = appender
        self._relations = relations
        self._outbox = outbox
        self._maps: dict[bytes, bytes] = {}
        """By the number of a table, which is the server's for the time being: what its map said."""
        self._tables: dict[bytes, tuple[Known, Any, Layout | None] | None] = {}
        self._runs: list[_Run] = []
        self._newest: dict[TableName, _Run] = {}
        self._bytes = 0
        self._parts: list[Part] = []
        self.kept = 0
        """Events of rows that have been taken."""

    @property
    def any(self) -> bool:
        return bool(self._runs or self._parts)

    @property
    def large(self) -> bool:
        return self._bytes >= ROUND_BYTES

    def keep(self, event: bytes, place: int) -> bool:
        """Whether this event is dealt with here: row images are, and maps of tables that are as they were."""
        kind = event[5]
        if kind == TABLE_MAP:
            return self._map(event)
        if kind not in ROWS:
            return False
        number = event[HEADER : HEADER + 6]
        if number not in self._tables and number != NO_TABLE:
            raise SourceLost(source="the binlog", why="it tells of rows of a table without describing it")
        found = self._tables.get(number)
        if found is not None:
            self._rows(event, kind, number, found, place)
        return True

    def learn(self, told: Any) -> None:
        """A map that is new, as mysql-replication has read it."""
        number = told.table_id.to_bytes(6, "little")
        known = self._relations.of((told.schema, told.table))
        self._tables[number] = (known, told, None) if known is not None else None

    def give(self) -> list[Part]:
        """All parts since the last time."""
        self.stage()
        parts, self._parts = self._parts, []
        return parts

    def forget(self) -> None:
        """The connection is new: tables are described anew, what was not appended comes again."""
        self.forget_tables()
        self._runs, self._newest, self._bytes, self._parts = [], {}, 0, []
        if self._outbox is not None:
            self._outbox.forget()

    def forget_tables(self) -> None:
        """A server that was started again gives their numbers to others."""
        self._maps.clear()
        self._tables.clear()

    def stage(self) -> None:
        """Decode what was kept."""
        runs, self._runs, self._newest, self._bytes = self._runs, [], {}, 0
        for run in runs:
            self._decode(run)

    def take_away(self, tables: Iterable[TableName], place: int) -> None:
        """TRUNCATE. All that came before it is in the log."""
        for name in tables:
            known = self._relations.of(name)
            if known is None:
                continue
            spec, log = known.spec, self._appender.log
            for partition, extent in log.extents(spec.name).items():
                for batch in removals(log, spec, partition, extent.end):
                    left = not_shown(known.overlaps, batch.column(spec.key[0]), np.full(batch.num_rows, place))
                    gone = batch.filter(pa.array(left))
                    self._parts.append(log.stage(spec.name, partition, gone, producer=self._appender.producer))

    # --- events ---

    def _map(self, event: bytes) -> bool:
        """6 bytes number, 2 bytes flags, then the names of database and table, each behind its length, before a 0."""
        number, body = event[HEADER : HEADER + 6], event[HEADER + 6 :]
        if self._maps.get(number) == body:
            return True
        database, at = _name(body, 2)
        table, _ = _name(body, at + 1)
        self._maps[number] = body
        if self._relations.of((database, table)) is not None:
            return False
        self._tables[number] = None
        return True

    def _rows(
        self, event: bytes, kind: int, number: bytes, found: tuple[Known, Any, Layout | None], place: int
    ) -> None:
        known, told, layout = found
        if place <= known.shown_until and not self._is_outbox(known):
            return  # of a time that the table has been read since: it may have had columns that nobody knows now
        if layout is None:
            layout = self._relations.learn(told, known)
            self._tables[number] = (known, told, layout)
        at = HEADER + 8
        if kind >= SECOND_VERSION:
            at += int.from_bytes(event[at : at + 2], "little")
        columns, at = _length(event, at)
        if columns != len(layout.columns):
            raise TableChanged(
                table=known.table.name,
                topic=known.table.topic,
                why=f"its rows are told with {columns} columns, and {len(layout.columns)} were described",
                do=f"Run: headwater capture resnapshot NAME {known.table.name}",
            )
        run = self._newest.get((told.schema, told.table))
        if run is None or run.layout is not layout:
            run = self._newest[told.schema, told.table] = _Run(known, layout)
            self._runs.append(run)
        run.bodies.append(event[at:])
        run.kinds.append(ROWS[kind])
        run.places.append(place)
        self._bytes += len(event) - at
        self.kept += 1

    def _decode(self, run: _Run) -> None:
        known, layout = run.known, run.layout
        data = np.frombuffer(b"".join(run.bodies), np.uint8)
        ends = np.cumsum([len(body) for body in run.bodies])
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        kinds, form = np.array(run.kinds, np.int64), (layout.widths, layout.prefixes)
        rows = count_images(data, begins, ends, kinds, *form)
        starts, lengths, signs, events = find_fields(data, begins, ends, kinds, *form, rows)
        self._refuse_parts_of_rows(run, lengths == ABSENT)
        batch = imaged(layout, known.spec, data, starts, lengths, signs)
        if self._outbox is not None and self._is_outbox(known):
            inserted = batch.filter(pa.array(kinds[events] == INSERTED))
            self._parts += self._outbox.parts(inserted)  # also what snapshots have shown: it may be deleted by then
        if known.overlaps:
            places = np.array(run.places, np.int64)[events]
            batch = batch.filter(pa.array(not_shown(known.overlaps, batch.column(known.spec.key[0]), places)))
        if batch.num_rows:
            self._parts += self._appender.stage(known.spec, batch)

    def _is_outbox(self, known: Known) -> bool:
        return self._outbox is not None and known.table.name == self._outbox.table

    def _refuse_parts_of_rows(self, run: _Run, absent: Any) -> None:
        for place in np.flatnonzero(absent.any(axis=1)).tolist():
            column = run.layout.columns[place]
            if column is not None:
                table = run.known.table
                raise TableChanged(
                    table=table.name,
                    topic=table.topic,
                    why=f"column {column.name!r} is left out of its changes: somebody has set binlog_row_image",
                    do="Run: SET GLOBAL binlog_row_image = 'FULL';  -- in all sessions; and then: "
                    f"headwater capture resnapshot NAME {table.name}",
                )


def _name(body: bytes, at: int) -> tuple[str, int]:
    size = body[at]
    return body[at + 1 : at + 1 + size].decode(), at + 1 + size


def _length(body: bytes, at: int) -> tuple[int, int]:
    """A number as MySQL packs it, and where it ends."""
    first = body[at]
    width = {252: 2, 253: 3, 254: 8}.get(first, 0)
    return (int.from_bytes(body[at + 1 : at + 1 + width], "little") if width else first), at + 1 + width
