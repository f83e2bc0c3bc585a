"""A few rows straight into the bytes of an Arrow message, by Python's own means.

Arrow is made for columns: eight rows of five columns cost it half a millisecond of small calls, which is more than the
sync of the append. What is written here is the same message that `RecordBatch.serialize()` gives, its header taken from
one that Arrow made for the same schema. Only values that are exactly of their column's type are taken; for all else
`FewRows.typed` answers None, and Arrow looks at them, converts what may be converted and refuses the rest by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa

from headwater.records import DELETED, WEIGHT

MOST = 64
"""With more rows than this, Arrow is the faster one."""

Values = list[Any]
Buffers = list[bytes]
"""Of one column, without the validity that stands in front."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EXACT = 2**53
_INT64 = struct.Struct("<q")
_ENDS = struct.Struct("<2i")
_NULL = bytes(8)
"""The validity of one value that is not there, padded."""
_PADDING = [b"\0" * (-size % 8) for size in range(8)]


class _Unfit(Exception):
    """Internal: a value that Arrow has to look at."""


class FewRows:
    """Rows of one stored schema."""

    def __init__(self, stored: pa.Schema, required: Sequence[str], columns: Sequence[tuple[_Typed, _Packed]]) -> None:
        self._names = stored.names
        self._known = frozenset(stored.names)
        self._required = frozenset(required)
        self._columns = columns
        self._one = [_ONE[field.type] for field in stored]
        self._header = _Header(stored)

    @classmethod
    def of(cls, stored: pa.Schema, required: Sequence[str]) -> FewRows | None:
        """None for a schema with columns that only Arrow writes: nested ones, decimals."""
        columns = [_COLUMNS.get(field.type) for field in stored]
        if any(column is None for column in columns):
            return None
        return cls(stored, required, [column for column in columns if column is not None])

    def typed(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Values] | None:
        """The rows' values by column as they are stored, or None where Arrow has to look."""
        try:
            for row in rows:
                if type(row) is not dict or not self._known.issuperset(row):
                    return None
            found = {}
            for name, (typed, _) in zip(self._names, self._columns, strict=True):
                values = [row.get(name) for row in rows]
                missing = None in values
                if missing and name in _DEFAULTS:
                    values = [_DEFAULTS[name] if value is None else value for value in values]
                elif missing and name in self._required:
                    return None
                found[name] = typed(values)
        except (_Unfit, ValueError, OverflowError):
            return None
        return None if 0 in found.get(WEIGHT, ()) else found

    def message(self, columns: Mapping[str, Values], rows: Sequence[int]) -> bytes | None:
        """Some of the typed rows as an Arrow message; None if a number does not fit its column."""
        if len(rows) == 1:
            return self._one_row(columns, rows[0])
        count, at = len(rows), 0
        nodes: list[int] = []
        buffers: list[int] = []
        body: list[bytes] = []
        try:
            for name, (_, packed) in zip(self._names, self._columns, strict=True):
                every = columns[name]
                values = [every[row] for row in rows]
                nulls = values.count(None)
                nodes += (count, nulls)
                valid = _bits([value is not None for value in values]) if nulls else b""
                for buffer in (valid, *packed(values)):
                    size = len(buffer)
                    buffers += (at, size)
                    body += (buffer, _PADDING[size % 8])
                    at += size + -size % 8
        except (struct.error, OverflowError, UnicodeEncodeError):
            return None
        return b"".join((self._header.filled(count, nodes, buffers, at), *body))

    def _one_row(self, columns: Mapping[str, Values], row: int) -> bytes | None:
        """The commonest case: the same without a list a column."""
        at = 0
        nodes: list[int] = []
        buffers: list[int] = []
        body: list[bytes] = []
        try:
            for name, pack in zip(self._names, self._one, strict=True):
                value = columns[name][row]
                if value is None:
                    nodes += (1, 1)
                    buffers += (at, 1)
                    body.append(_NULL)
                    at += 8
                else:
                    nodes += (1, 0)
                    buffers += (at, 0)
                for buffer in pack(value):
                    size = len(buffer)
                    buffers += (at, size)
                    body += (buffer, _PADDING[size % 8])
                    at += size + -size % 8
        except (struct.error, OverflowError, UnicodeEncodeError):
            return None
        return b"".join((self._header.filled(1, nodes, buffers, at), *body))


class _Header:
    """The header of a record batch message, in which only numbers change: all of them stand at fixed places.

    It is a flatbuffer. Message: version, header type, header, body length. Its header, a RecordBatch: length, nodes,
    buffers. Nodes and buffers are vectors of pairs of int64.
    """

    def __init__(self, stored: pa.Schema) -> None:
        one = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in stored], schema=stored)
        message = bytes(one.serialize())
        begin, length = 8, int.from_bytes(message[4:8], "little")
        self._bytes = message[: begin + length]
        table = begin + self._unsigned(begin)
        batch = self._field(table, 2)
        batch += self._unsigned(batch)
        self._body_length = self._field(table, 3)
        self._rows = self._field(batch, 0)
        self._nodes, self._fill_nodes = self._vector(batch, 1)
        self._buffers, self._fill_buffers = self._vector(batch, 2)

    def _unsigned(self, place: int) -> int:
        return int.from_bytes(self._bytes[place : place + 4], "little")

    def _field(self, table: int, number: int) -> int:
        signed = int.from_bytes(self._bytes[table : table + 4], "little", signed=True)
        entry = table - signed + 4 + 2 * number
        return table + int.from_bytes(self._bytes[entry : entry + 2], "little")

    def _vector(self, table: int, number: int) -> tuple[int, struct.Struct]:
        """Where the first element is, after the count; and what fills them all."""
        field = self._field(table, number)
        vector = field + self._unsigned(field)
        return vector + 4, struct.Struct(f"<{2 * self._unsigned(vector)}q")

    def filled(self, rows: int, nodes: Sequence[int], buffers: Sequence[int], body_length: int) -> bytearray:
        header = bytearray(self._bytes)
        _INT64.pack_into(header, self._rows, rows)
        self._fill_nodes.pack_into(header, self._nodes, *nodes)
        self._fill_buffers.pack_into(header, self._buffers, *buffers)
        _INT64.pack_into(header, self._body_length, body_length)
        return header


# --- what a column takes, and how it rests ---

_Typed = Callable[[Values], Values]
_Packed = Callable[[Values], Buffers]
_One = Callable[[Any], tuple[bytes, ...]]
_DEFAULTS: dict[str, Any] = {WEIGHT: 1, DELETED: False}
_NOTHING = type(None)


def _exactly(*kinds: type) -> _Typed:
    allowed = {*kinds, _NOTHING}

    def typed(values: Values) -> Values:
        if not allowed.issuperset(map(type, values)):
            raise _Unfit
        return values

    return typed


def _floats(values: Values) -> Values:
    return [value if type(value) is float or value is None else _whole(value) for value in values]


def _whole(value: Any) -> float:
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return float(value)
    raise _Unfit


def _timestamps(values: Values) -> Values:
    return [None if value is None else _microseconds(value) for value in values]


def _microseconds(value: Any) -> int:
    """Text as JSON has it is ISO 8601, in UTC unless it says otherwise."""
    if type(value) is str:
        value = datetime.fromisoformat(value)
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
    if type(value) is not datetime or value.tzinfo is None:
        raise _Unfit
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _days(values: Values) -> Values:
    if not {date, _NOTHING}.issuperset(map(type, values)):
        raise _Unfit
    return [None if value is None else value.toordinal() - _EPOCH_DAY for value in values]


def _numbers(code: str) -> _Packed:
    def packed(values: Values) -> Buffers:
        if None in values:
            values = [0 if value is None else value for value in values]
        return [struct.pack(f"<{len(values)}{code}", *values)]

    return packed


def _bytes(values: Values) -> Buffers:
    values = [b"" if value is None else value for value in values]
    ends = list(accumulate(map(len, values), initial=0))
    return [struct.pack(f"<{len(ends)}i", *ends), b"".join(values)]


def _texts(values: Values) -> Buffers:
    return _bytes([None if value is None else value.encode() for value in values])


def _bits(values: Values) -> bytes:
    number = sum(1 << place for place, value in enumerate(values) if value)
    return number.to_bytes((len(values) + 7) // 8, "little")


def _one_number(code: str) -> _One:
    pack = struct.Struct(f"<{code}").pack
    return lambda value: (pack(0 if value is None else value),)


def _one_text(value: str | None) -> tuple[bytes, ...]:
    return _one_bytes(None if value is None else value.encode())


def _one_bytes(value: bytes | None) -> tuple[bytes, ...]:
    return (_ENDS.pack(0, len(value)), value) if value is not None else (_NULL, b"")


_CODES = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
}
_COLUMNS: dict[pa.DataType, tuple[_Typed, _Packed]] = {
    **{kind: (_exactly(int), _numbers(code)) for kind, code in _CODES.items()},
    pa.float64(): (_floats, _numbers("d")),
    pa.bool_(): (_exactly(bool), lambda values: [_bits(values)]),
    pa.string(): (_exactly(str), _texts),
    pa.binary(): (_exactly(bytes), _bytes),
    pa.timestamp("us", "UTC"): (_timestamps, _numbers("q")),
    pa.date32(): (_days, _numbers("i")),
}
_ONE: dict[pa.DataType, _One] = {
    **{kind: _one_number(code) for kind, code in _CODES.items()},
    pa.float64(): _one_number("d"),
    pa.bool_(): lambda value: (b"\1" if value else b"\0",),
    pa.string(): _one_text,
    pa.binary(): _one_bytes,
    pa.timestamp("us", "UTC"): _one_number("q"),
    pa.date32(): _one_number("i"),
}
"""The same for one value."""
