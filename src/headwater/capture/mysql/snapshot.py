"""The first contents of the tables: ranges of their keys, read in parallel, each one append with its state.

Each worker reads from a snapshot of its own, of a known place in the binlog at or after the position. What it shows of
the stream is left out of that later (`overlap`); so what is left after a crash is simply read from newer snapshots.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from headwater.capture import ranges
from headwater.capture.appender import Appender
from headwater.capture.mysql.binlog import Server, close, open_snapshots
from headwater.capture.mysql.connection import Connection, ask, quoted
from headwater.capture.mysql.copying import copied
from headwater.capture.mysql.overlap import Overlap
from headwater.capture.mysql.rows import selected
from headwater.capture.mysql.tables import Table
from headwater.capture.mysql.types import INTEGERS
from headwater.capture.outbox import Outbox
from headwater.capture.ranges import RANGE_ROWS, Piece, Range, cut
from headwater.capture.reading import read_in_parallel
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

WORKERS = 4
ABOUT = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"

Told = Callable[[int, int], None]
"""Rows read so far, and about how many there are."""


def planned(connection: Connection, tables: Sequence[Table]) -> tuple[list[Piece], int]:
    return ranges.planned(tables, partial(rows_of, connection), partial(ranges_of, connection))


def rows_of(connection: Connection, table: Table) -> int:
    """About how many there are, by the server's estimate."""
    rows = ask(connection, ABOUT, (table.database, table.relation))
    return int(rows[0][0] or 0) if rows else 0


def ranges_of(connection: Connection, table: Table, rows: int) -> list[Range]:
    """Ranges of the first column of the key, if that is an integer; other tables are one range."""
    lead = next(column for column in table.columns if column.name == table.key[0])
    wanted = -(-rows // RANGE_ROWS)
    if lead.base not in INTEGERS or wanted <= 1:
        return [Range()]
    name = quoted(lead.name)
    low, high = ask(connection, f"SELECT min({name}), max({name}) FROM {table.sql_name}")[0]
    if low is None or high is None or high == low:
        return [Range()]
    return cut(int(low), int(high), wanted)


def select_statement(table: Table, within: Range) -> str:
    names = ", ".join(column.expression(quoted(column.name)) for column in table.columns)
    return f"SELECT {names} FROM {table.sql_name} WHERE {within.condition(quoted(table.key[0]))}"


class Snapshot:
    """Reads the pieces that are not done; `stopped` ends it after whatever is being read."""

    def __init__(
        self,
        url: str,
        server: Server,
        appender: Appender,
        tables: Mapping[str, Table],
        specs: Mapping[str, TopicSpec],
        *,
        stopped: threading.Event,
        told: Told,
        outbox: Outbox | None = None,
    ) -> None:
        self._url = url
        self._server = server
        self._appender = appender
        self._tables = tables
        self._specs = specs
        self._stopped = stopped
        self._told = told
        self._outbox = outbox
        self._read = 0

    def take(self, pieces: Sequence[Piece], about: int) -> None:
        """Until all is done, or it is stopped. Each append has the list of pieces as it is then."""
        pieces = list(pieces)
        todo = sum(not piece.done for piece in pieces)
        if not todo:
            return
        opened = open_snapshots(self._url, self._server, min(WORKERS, todo))
        readers = [self._reader(connection, seen) for connection, seen in opened]
        try:
            with closing(read_in_parallel(pieces, readers, self._stopped)) as found:
                for number, (parts, seen) in found:
                    pieces[number] = replace(pieces[number], done=True)
                    self._append(pieces, pieces[number], parts, seen)
                    self._told(self._read, max(about, self._read))
        finally:
            close(opened)

    def _append(self, pieces: Sequence[Piece], done: Piece, parts: list[Part], seen: int) -> None:
        state: dict[str, Any] = {"pieces": [piece.as_json() for piece in pieces]}
        if seen > self._appender.position.end:
            known = self._appender.state.get("overlaps") or []
            state["overlaps"] = [*known, Overlap(done.table, done.range, seen).as_json()]
        self._appender.append(parts, **state)
        self._read += sum(part.rows for part in parts)

    @contextmanager
    def _reader(self, connection: Connection, seen: int) -> Iterator[Callable[[Piece], tuple[list[Part], int]]]:
        """Tells with each piece the place in the binlog that it was read as of."""
        try:
            yield lambda piece: (self._piece(connection, piece), seen)
        finally:
            close([(connection, seen)])  # at once: an ALTER that waits for it makes the other workers wait

    def _piece(self, connection: Connection, piece: Piece) -> list[Part]:
        table, spec = self._tables[piece.table], self._specs[piece.table]
        parts: list[Part] = []
        for data, rows in copied(connection, select_statement(table, piece.range), url=self._url):
            batch = selected(table, spec, data, rows)
            parts += self._appender.stage(spec, batch)
            if self._outbox is not None and table.name == self._outbox.table:
                parts += self._outbox.parts(batch)
        return parts
