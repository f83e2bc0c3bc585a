"""The first contents of the tables: ranges of their keys, read in parallel by COPY, each one append with its state.

The slot's own snapshot shows exactly what its stream does not tell: everything committed before it begins. It lives as
long as the connection that made the slot. After a crash, ranges that are not done are read from a newer snapshot, which
already shows some of what the stream will tell: see `overlap`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from psycopg import pq

from headwater.capture import ranges
from headwater.capture.appender import Appender
from headwater.capture.outbox import Outbox
from headwater.capture.postgres.connection import Connection, connect_low, quoted, shown
from headwater.capture.postgres.copying import copied
from headwater.capture.postgres.frames import split_copied
from headwater.capture.postgres.overlap import Overlap
from headwater.capture.postgres.ranges import ranges_of, rows_of
from headwater.capture.postgres.rows import batch_of
from headwater.capture.postgres.tables import Table
from headwater.capture.ranges import Piece, Range
from headwater.capture.reading import read_in_parallel
from headwater.errors import SourceLost
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

WORKERS = 4

Told = Callable[[int, int], None]
"""Rows read so far, and about how many there are."""


def planned(connection: Connection, tables: Sequence[Table]) -> tuple[list[Piece], int]:
    return ranges.planned(tables, partial(rows_of, connection), partial(ranges_of, connection))


class Snapshot:
    """Reads the pieces that are not done; `stopped` ends it after whatever is being read."""

    def __init__(
        self,
        url: str,
        appender: Appender,
        tables: Mapping[str, Table],
        specs: Mapping[str, TopicSpec],
        *,
        stopped: threading.Event,
        told: Told,
        outbox: Outbox | None = None,
    ) -> None:
        self._outbox = outbox
        self._url = url
        self._appender = appender
        self._tables = tables
        self._specs = specs
        self._stopped = stopped
        self._told = told
        self._read = 0

    def take(self, pieces: list[Piece], snapshot: str, *, later: tuple[str, int] | None, about: int) -> None:
        """Read from the exported `snapshot` until all is done, or it is stopped. If it is a later one than the slot's,
        `later` are the transactions that it has seen, and up to where the stream tells of these. Each append has the
        list of pieces as it is then.
        """
        pieces = list(pieces)
        readers = [self._reader(snapshot) for _ in range(min(WORKERS, sum(not piece.done for piece in pieces)))]
        with closing(read_in_parallel(pieces, readers, self._stopped)) as found:
            for number, parts in found:
                pieces[number] = replace(pieces[number], done=True)
                self._read += sum(part.rows for part in parts)
                self._append(parts, pieces, pieces[number], later)
                self._told(self._read, max(about, self._read))

    def _append(
        self, parts: Sequence[Part], pieces: Sequence[Piece], done: Piece, later: tuple[str, int] | None
    ) -> None:
        state: dict[str, Any] = {"pieces": [piece.as_json() for piece in pieces]}
        if later is not None:
            known = self._appender.state.get("overlaps") or []
            state["overlaps"] = [*known, Overlap(done.table, done.range, *later).as_json()]
        self._appender.append(parts, **state)

    @contextmanager
    def _reader(self, snapshot: str) -> Iterator[Callable[[Piece], list[Part]]]:
        handle = connect_low(self._url)
        try:
            _ask(handle, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", self._url)
            _ask(handle, f"SET TRANSACTION SNAPSHOT '{snapshot}'", self._url)
            yield partial(self._piece, handle)
        finally:
            handle.finish()

    def _piece(self, handle: pq.abc.PGconn, piece: Piece) -> list[Part]:
        table = self._tables[piece.table]
        spec = self._specs[piece.table]
        parts: list[Part] = []
        for data, starts, ends in copied(handle, copy_statement(table, piece.range), source=shown(self._url)):
            places, lengths = split_copied(data, starts, ends, len(table.columns))
            batch = batch_of(table, spec, data, places, lengths)
            parts += self._appender.stage(spec, batch)
            if self._outbox is not None and table.name == self._outbox.table:
                parts += self._outbox.parts(batch)
        return parts


def copy_statement(table: Table, within: Range) -> str:
    names = ", ".join(quoted(column.name) for column in table.columns)
    return f"COPY (SELECT {names} FROM {table.sql_name} WHERE {within.condition(quoted(table.key[0]))}) TO STDOUT"


def _ask(handle: pq.abc.PGconn, statement: str, url: str) -> None:
    result = handle.exec_(statement.encode())
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise SourceLost(source=shown(url), why=result.get_error_message())
