"""The first contents of the tables: ranges of their keys, read in parallel, each one append with its state.

Each worker reads from a snapshot of its own, of a known place in the binlog at or after the position. What it shows of
the stream is left out of that later (`overlap`); so what is left after a crash is simply read from newer snapshots.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

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
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

WORKERS = 4
ABOUT = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"

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


@dataclass(frozen=True)
class _Read:
    number: int
    parts: list[Part]
    seen: int
    """The place in the binlog that it was read as of."""


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
        self._given_up = threading.Event()

    def take(self, pieces: Sequence[Piece], about: int) -> None:
        """Until all is done, or it is stopped. Workers read and stage; this thread appends, one piece at a time, with
        the list of pieces as it is then."""
        pieces = list(pieces)
        left: queue.SimpleQueue[int] = queue.SimpleQueue()
        todo = [number for number, piece in enumerate(pieces) if not piece.done]
        for number in todo:
            left.put(number)
        if not todo:
            return
        opened = open_snapshots(self._url, self._server, min(WORKERS, len(todo)))
        results: queue.SimpleQueue[_Read | BaseException | None] = queue.SimpleQueue()
        failure: BaseException | None = None
        try:
            with ThreadPoolExecutor(len(opened), thread_name_prefix="snapshot") as pool:
                for connection, seen in opened:
                    pool.submit(self._work, connection, seen, pieces, left, results)
                ended = 0
                while ended < len(opened):
                    result = results.get()
                    if result is None:
                        ended += 1
                    elif isinstance(result, BaseException):
                        failure = failure or result
                        self._given_up.set()
                    elif failure is None:
                        pieces[result.number] = replace(pieces[result.number], done=True)
                        self._append(pieces, result)
                        self._told(self._read, max(about, self._read))
        finally:
            close(opened)
        if failure is not None:
            raise failure

    def _append(self, pieces: Sequence[Piece], read: _Read) -> None:
        state: dict[str, Any] = {"pieces": [piece.as_json() for piece in pieces]}
        done = pieces[read.number]
        if read.seen > self._appender.position.end:
            known = self._appender.state.get("overlaps") or []
            state["overlaps"] = [*known, Overlap(done.table, done.range, read.seen).as_json()]
        self._appender.append(read.parts, **state)
        self._read += sum(part.rows for part in read.parts)

    def _work(
        self,
        connection: Connection,
        seen: int,
        pieces: Sequence[Piece],
        left: queue.SimpleQueue[int],
        results: queue.SimpleQueue[_Read | BaseException | None],
    ) -> None:
        try:
            while not self._stopped.is_set() and not self._given_up.is_set():
                number = left.get_nowait()
                results.put(_Read(number, self._piece(connection, pieces[number]), seen))
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 whatever it is, the thread that waits raises it
            results.put(error)
        finally:
            close([(connection, seen)])  # at once: an ALTER that waits for it makes the other workers wait
            results.put(None)

    def _piece(self, connection: Connection, piece: Piece) -> list[Part]:
        table, spec = self._tables[piece.table], self._specs[piece.table]
        parts: list[Part] = []
        for data, rows in copied(connection, select_statement(table, piece.range), url=self._url):
            batch = selected(table, spec, data, rows)
            parts += self._appender.stage(spec, batch)
            if self._outbox is not None and table.name == self._outbox.table:
                parts += self._outbox.parts(batch)
        return parts
