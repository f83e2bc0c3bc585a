"""The first contents of the tables: ranges of their keys, read in parallel by COPY, each one append with its state.

The slot's own snapshot shows exactly what its stream does not tell: everything committed before it begins. It lives as
long as the connection that made the slot. After a crash, ranges that are not done are read from a newer snapshot, which
already shows some of what the stream will tell: see `overlap`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from psycopg import pq

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
from headwater.errors import SourceLost
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

WORKERS = 4

Told = Callable[[int, int], None]
"""Rows read so far, and about how many there are."""


def planned(connection: Connection, tables: Sequence[Table]) -> tuple[list[Piece], int]:
    """All that is to be read, and about how many rows that are."""
    sizes = [rows_of(connection, table) for table in tables]
    pieces = [
        Piece(table.name, each)
        for table, rows in zip(tables, sizes, strict=True)
        for each in ranges_of(connection, table, rows)
    ]
    return pieces, sum(sizes)


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
        `later` are the transactions that it has seen, and up to where the stream tells of these.

        Workers read and stage; this thread appends, one piece at a time, with the list of pieces as it is then.
        """
        pieces = list(pieces)
        left: queue.SimpleQueue[int] = queue.SimpleQueue()
        todo = [number for number, piece in enumerate(pieces) if not piece.done]
        for number in todo:
            left.put(number)
        results: queue.SimpleQueue[tuple[int, list[Part]] | BaseException | None] = queue.SimpleQueue()
        workers = min(WORKERS, len(todo))
        with ThreadPoolExecutor(max(1, workers), thread_name_prefix="snapshot") as pool:
            for _ in range(workers):
                pool.submit(self._work, pieces, left, snapshot, results)
            ended, failure = 0, None
            while ended < workers:
                result = results.get()
                if result is None:
                    ended += 1
                elif isinstance(result, BaseException):
                    failure = failure or result
                    self._drain(left)
                elif failure is None:
                    number, parts = result
                    pieces[number] = replace(pieces[number], done=True)
                    self._read += sum(part.rows for part in parts)
                    self._append(parts, pieces, pieces[number], later)
                    self._told(self._read, max(about, self._read))
            if failure is not None:
                raise failure

    def _append(
        self, parts: Sequence[Part], pieces: Sequence[Piece], done: Piece, later: tuple[str, int] | None
    ) -> None:
        state: dict[str, Any] = {"pieces": [piece.as_json() for piece in pieces]}
        if later is not None:
            known = self._appender.state.get("overlaps") or []
            state["overlaps"] = [*known, Overlap(done.table, done.range, *later).as_json()]
        self._appender.append(parts, **state)

    def _drain(self, left: queue.SimpleQueue[int]) -> None:
        while not left.empty():
            try:
                left.get_nowait()
            except queue.Empty:
                return

    def _work(self, pieces: Sequence[Piece], left: queue.SimpleQueue[int], snapshot: str, results: Any) -> None:
        try:
            handle = connect_low(self._url)
            try:
                _ask(handle, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", self._url)
                _ask(handle, f"SET TRANSACTION SNAPSHOT '{snapshot}'", self._url)
                while not self._stopped.is_set():
                    try:
                        number = left.get_nowait()
                    except queue.Empty:
                        break
                    results.put((number, self._piece(handle, pieces[number])))
            finally:
                handle.finish()
        except BaseException as error:  # noqa: BLE001 whatever it is, the thread that waits raises it
            results.put(error)
        finally:
            results.put(None)

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
