"""`COPY ... TO STDOUT`, as buffers of whole frames."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import numpy as np
from psycopg import pq

from headwater.capture.compiled import Bytes, Ints
from headwater.capture.postgres.frames import count_frames, find_bodies
from headwater.capture.postgres.wire import error_words, readable_past
from headwater.errors import SourceLost

PIECE_BYTES = 4 * 1024 * 1024
DATA, ERROR, READY = ord("d"), ord("E"), ord("Z")


def copied(handle: pq.abc.PGconn, statement: str, *, source: str) -> Iterator[tuple[Bytes, Ints, Ints]]:
    """The rows as COPY writes them: a buffer, and where each row begins and ends in it.

    Read past libpq, as in `wire`, but for TLS; when it is over, the connection is as before.
    """
    read = _by_socket if readable_past(handle) else _by_libpq
    frames = read(handle, statement, source)
    for data, begin, count in frames:
        tags, starts, ends = find_bodies(data, begin, count)
        rows = tags == DATA
        if rows.any():
            yield data, starts[rows], ends[rows]


def _by_socket(handle: pq.abc.PGconn, statement: str, source: str) -> Iterator[tuple[Bytes, int, int]]:
    with socket.socket(fileno=os.dup(handle.socket)) as server:
        server.setblocking(True)
        text = statement.encode() + b"\0"
        server.sendall(b"Q" + struct.pack(">I", len(text) + 4) + text)
        rest = np.zeros(0, np.uint8)
        while True:
            data = np.empty(len(rest) + PIECE_BYTES, np.uint8)
            data[: len(rest)] = rest
            filled, view, over = len(rest), data.data, False
            while filled < len(data) and not over:
                size = server.recv_into(view[filled:])
                if size == 0:
                    raise SourceLost(source=source, why="the server closed the connection during COPY")
                filled += size
                over = filled >= 6 and bytes(data[filled - 6 : filled - 1]) == b"Z\0\0\0\5"
            count, end = count_frames(data, 0, filled)
            _refuse_errors(data, count, source)
            yield data, 0, count
            if over and end == filled and _last_tag(data, count) == READY:
                return
            rest = data[end:filled]


def _by_libpq(handle: pq.abc.PGconn, statement: str, source: str) -> Iterator[tuple[Bytes, int, int]]:
    result = handle.exec_(statement.encode())
    if result.status != pq.ExecStatus.COPY_OUT:
        raise SourceLost(source=source, why=result.get_error_message())
    while True:
        frames, size, rows = bytearray(), 0, 0
        while len(frames) < PIECE_BYTES:
            size, body = handle.get_copy_data(0)
            if size < 0:
                break
            frames += b"d" + struct.pack(">I", size + 4) + bytes(body)
            rows += 1
        yield np.frombuffer(frames, np.uint8), 0, rows
        if size < 0:
            break
    while (ended := handle.get_result()) is not None:
        if ended.status == pq.ExecStatus.FATAL_ERROR:
            raise SourceLost(source=source, why=ended.get_error_message())


def _refuse_errors(data: Bytes, count: int, source: str) -> None:
    tags, starts, ends = find_bodies(data, 0, count)
    for place in np.flatnonzero(tags == ERROR):
        _, words = error_words(bytes(data[starts[place] : ends[place]]))
        raise SourceLost(source=source, why=words)


def _last_tag(data: Bytes, count: int) -> int:
    tags, _, _ = find_bodies(data, 0, count)
    return int(tags[-1]) if count else 0
