"""Arrow in a body, from somebody who need not be honest.

How large it becomes and whether it holds is known before it is used: its buffers are unpacked only after their sizes
were added up; offsets, lengths and text are then checked whole."""

from __future__ import annotations

import struct

import pyarrow as pa

from headwater.errors import BadRequest, TooLarge

STREAM = "application/vnd.apache.arrow.stream"
FILE = "application/vnd.apache.arrow.file"
UNPACKED_BYTES = 128 * 1024 * 1024
MOST_ROWS = 4_000_000
"""Rows of nothing but nulls take no bytes at all."""

MAGIC = b"ARROW1\0\0"
"""After it, a file is what a stream is; its footer only says again where the batches are."""


def table_in(body: bytes, kind: str) -> pa.Table:
    if kind == FILE:
        if not body.startswith(MAGIC):
            raise _not_arrow("it does not begin as an Arrow file does")
        body = body[len(MAGIC) :]
    try:
        return _read(body)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
        raise _not_arrow(str(error).partition("\n")[0]) from None


def _read(body: bytes) -> pa.Table:
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(body))
    first = next(iter(messages), None)
    if first is None or first.type != "schema":
        raise ValueError("it has no schema")
    schema = pa.ipc.read_schema(first)
    for field in schema:
        _refuse_indirect(field.type, field.name)
    batches, rows, unpacked = [], 0, 0
    for message in messages:
        if message.type != "record batch":
            raise ValueError(f"it has a {message.type} where a batch should be")
        unpacked += _unpacked(message)
        if unpacked > UNPACKED_BYTES:
            raise TooLarge(limit_bytes=UNPACKED_BYTES)
        batch = pa.ipc.read_record_batch(message, schema)
        rows += batch.num_rows
        if rows > MOST_ROWS:
            raise BadRequest(why=f"the body has more than {MOST_ROWS} rows", do="Send it in several appends")
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def _refuse_indirect(kind: pa.DataType, column: str) -> None:
    """Types in which few bytes stand for many."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType):
        raise BadRequest(
            why=f"column {column!r} has the type {kind}", do="Send its values themselves, e.g. with dictionary_decode()"
        )
    for place in range(kind.num_fields):
        _refuse_indirect(kind.field(place).type, column)


def _unpacked(message: pa.ipc.Message) -> int:
    """How many bytes the buffers of a batch are. Each that is compressed begins with its size, -1 if it is not."""
    batch = _Table.root(message.metadata.to_pybytes()).table(2)
    if batch.field(3) is None:
        return int(message.body.size)
    body = message.body
    total = 0
    for offset, length in batch.buffers(2):
        if length:
            (size,) = struct.unpack("<q", body.slice(offset, 8).to_pybytes())
            total += length if size < 0 else size
    return total


class _Table:
    """As much of a flatbuffer as it takes to find the buffers of a batch: `Message.header`, `RecordBatch.buffers`."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number("<i", place)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def field(self, number: int) -> int | None:
        """Where a field is; None if it is left out."""
        entry = 4 + 2 * number
        if entry >= self._number("<H", self._fields):
            return None
        offset = self._number("<H", self._fields + entry)
        return self._place + offset if offset else None

    def table(self, number: int) -> _Table:
        return _Table(self._data, self._follow(number))

    def buffers(self, number: int) -> list[tuple[int, int]]:
        start = self._follow(number)
        count = self._number("<I", start)
        if count > len(self._data):
            raise ValueError("more buffers than bytes")
        found = [struct.unpack_from("<qq", self._data, start + 4 + 16 * place) for place in range(count)]
        if any(offset < 0 or length < 0 for offset, length in found):
            raise ValueError("a buffer before its beginning")
        return [(int(offset), int(length)) for offset, length in found]

    def _follow(self, number: int) -> int:
        place = self.field(number)
        if place is None:
            raise ValueError("a message without its header")
        return place + self._number("<I", place)

    def _number(self, how: str, place: int) -> int:
        if place < 0:
            raise ValueError("a place before the beginning")
        return int(struct.unpack_from(how, self._data, place)[0])


def _not_arrow(why: str) -> BadRequest:
    return BadRequest(why=f"the body is not Arrow: {why}", do=f"Send an Arrow IPC stream as {STREAM}, a file as {FILE}")
