"""The rows of a SELECT, as buffers of whole rows: no Python runs per row."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND

from headwater.capture.compiled import Bytes
from headwater.capture.mysql.connection import Connection, shown, translated
from headwater.capture.mysql.frames import END_OF_ROWS, FAILED, TOO_LARGE, count_rows
from headwater.errors import SourceLost, SourceRefused

PIECE_BYTES = 4 * 1024 * 1024


def copied(connection: Connection, statement: str, *, url: str) -> Iterator[tuple[Bytes, int]]:
    """A buffer, and how many rows stand in it, from its beginning on. When it is over, the connection is as before.

    pymysql asks and reads the description of the columns; the rows are read past it.
    """
    try:
        connection._execute_command(COMMAND.COM_QUERY, statement)
        result = MySQLResult(connection)
        result.init_unbuffered_query()
        result.unbuffered_active = False  # or it reads the rest when it is collected
        yield from _pieces(connection, url)
    except pymysql.MySQLError as error:
        raise translated(error, url) from error


def _pieces(connection: Connection, url: str) -> Iterator[tuple[Bytes, int]]:
    reader, rest = connection._rfile, np.zeros(0, np.uint8)
    while True:
        data = np.empty(len(rest) + PIECE_BYTES, np.uint8)
        data[: len(rest)] = rest
        filled, rows, end, after = len(rest), 0, 0, 0
        while filled < len(data) and after == 0:
            come = reader.read1(len(data) - filled)  # not `readinto1`, which waits for more than is buffered
            if not come:
                raise SourceLost(source=shown(url), why="the server closed the connection amid a result")
            data[filled : filled + len(come)] = np.frombuffer(come, np.uint8)
            filled += len(come)
            more, end, after = count_rows(data, end, filled)
            rows += more
        if after == FAILED:
            _raise(data, end, filled)
        if after == TOO_LARGE:
            raise SourceRefused(
                source=shown(url),
                why="a row of more than 16 MB",
                statement="SELECT ... ;  -- find it, and keep such files elsewhere",
            )
        if rows:
            yield data, rows
        if after == END_OF_ROWS:
            return
        rest = data[end:filled]


def _raise(data: Bytes, at: int, filled: int) -> None:
    size = struct.unpack("<I", bytes(data[at : at + 3]) + b"\0")[0]
    pymysql.err.raise_mysql_exception(bytes(data[at + 4 : min(filled, at + 4 + size)]))
