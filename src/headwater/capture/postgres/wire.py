"""What the server streams, as raw bytes, read ahead by a thread of its own: of changes, and of COPY.

libpq connects and logs in; then it would hand over one message at a time, which is what a client in Python spends its
time on. So the statement that starts the stream is sent, and its answer read, on libpq's own socket. A connection with
TLS cannot be read past libpq: there its messages are taken one by one and framed again, a good deal slower.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from typing import Any

import psycopg
from psycopg import pq

from headwater.errors import SourceLost

READ_BYTES = 1024 * 1024
AHEAD_BYTES = 16 * 1024 * 1024
"""How much is read ahead of whoever decodes; then the server waits."""
SMALL_BYTES, PAUSE_S = 64 * 1024, 0.0002
"""The server sends every message alone. While much is waited for, they are let gather in the socket for a moment."""
POLL_S = 0.2


class Wire:
    """A stream that has begun. `take` from one thread, `send` from any."""

    def __init__(self, handle: pq.abc.PGconn, statement: str, *, source: str, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._handle = handle
        self._source = source
        self._ahead = ahead_bytes
        self._filled = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        self._wanted = 1
        self._failure: str | None = None
        self._talking = threading.Lock()
        self._socket: socket.socket | None = None
        past = readable_past(handle)
        if not past:
            handle.send_query(statement.encode())
            _begun(handle, source)
        else:
            self._socket = socket.socket(fileno=os.dup(handle.socket))
            self._socket.setblocking(True)
            text = statement.encode() + b"\0"
            self._socket.sendall(b"Q" + struct.pack(">I", len(text) + 4) + text)
        read = self._read_socket if past else self._read_messages
        self._thread = threading.Thread(target=self._run, args=(read,), name="read the server", daemon=True)
        self._thread.start()

    def take(self, wait_s: float, *, least: int = 1) -> bytearray:
        """What has come since: as soon as there is so much of it, or the time is up. Empty if nothing came.

        Raises `SourceLost` once the connection is gone and all that came before is taken.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            self._wanted = least
            while len(self._filled) < least and not self._ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            taken, self._filled = self._filled, bytearray()
            self._changed.notify_all()
            if not taken and self._ended:
                raise SourceLost(source=self._source, why=self._failure or "the server closed the connection")
            return taken

    def send(self, body: bytes) -> None:
        """One message of ours into the stream."""
        try:
            with self._talking:
                if self._socket is not None:
                    self._socket.sendall(b"d" + struct.pack(">I", len(body) + 4) + body)
                else:
                    self._handle.put_copy_data(body)
                    self._handle.flush()
        except (OSError, psycopg.Error) as error:
            raise SourceLost(source=self._source, why=str(error)) from error

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        if self._socket is not None:
            self._socket.close()
        self._handle.finish()

    # --- the thread ---

    def _run(self, read: Any) -> None:
        try:
            read()
        except (OSError, psycopg.Error) as error:
            self._failure = str(error)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, some: Any) -> None:
        with self._changed:
            while len(self._filled) >= self._ahead and not self._ended:
                self._changed.wait()
            self._filled += some
            if len(self._filled) >= self._wanted:
                self._changed.notify_all()

    def _read_socket(self) -> None:
        assert self._socket is not None
        piece = memoryview(bytearray(READ_BYTES))
        while not self._ended:
            size = self._socket.recv_into(piece)
            if size == 0:
                return
            self._put(piece[:size])
            if self._wanted > 1 and size < SMALL_BYTES:
                time.sleep(PAUSE_S)

    def _read_messages(self) -> None:
        while not self._ended:
            with self._talking:
                size, body = self._handle.get_copy_data(1)
                if size == 0:
                    self._handle.consume_input()
                    size, body = self._handle.get_copy_data(1)
            if size > 0:
                self._put(b"d" + struct.pack(">I", size + 4) + bytes(body))
            elif size == 0:
                select.select([self._handle.socket], [], [], POLL_S)
            else:
                result = self._handle.get_result()
                self._failure = result.get_error_message() if result is not None else None
                self._put(b"c" + struct.pack(">I", 4))
                return


def readable_past(handle: pq.abc.PGconn) -> bool:
    """Whether what comes can be read past libpq: not if only libpq can decrypt it."""
    return not handle.ssl_in_use


def _begun(handle: pq.abc.PGconn, source: str) -> None:
    result = handle.get_result()
    good = (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT)
    if result is None or result.status not in good:
        raise SourceLost(source=source, why=result.get_error_message() if result is not None else "no answer")


def error_words(body: bytes) -> tuple[str, str]:
    """The code and the message of an error frame."""
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return fields.get(b"C", ""), fields.get(b"M", "the server did not say why")
