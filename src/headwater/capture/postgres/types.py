"""Which Arrow type a column of PostgreSQL becomes, and what reads its text: one table.

What is not in it is captured as the text that PostgreSQL writes: json, uuid, enum, ranges, intervals, times of day,
addresses, bits, composites. So is a numeric without precision, or of more than 38 digits, or in a key: exact as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.capture.compiled import Bytes, Ints, Lengths
from headwater.capture.postgres import values
from headwater.typenames import TIMESTAMP

Reader = Callable[[Bytes, Ints, Lengths, pa.DataType], pa.Array]

NUMERIC = 1700
PLAIN: Mapping[int, tuple[pa.DataType, Reader]] = {
    16: (pa.bool_(), values.booleans),
    17: (pa.binary(), values.binaries),  # bytea
    20: (pa.int64(), values.integers),
    21: (pa.int16(), values.integers),
    23: (pa.int32(), values.integers),
    26: (pa.int64(), values.integers),  # oid
    700: (pa.float32(), values.floats),
    701: (pa.float64(), values.floats),
    1082: (pa.date32(), values.days),
    1114: (TIMESTAMP, values.moments),  # without time zone: taken as UTC
    1184: (TIMESTAMP, values.moments),
}
ARRAYS: Mapping[int, int] = {
    1000: 16,
    1001: 17,
    1016: 20,
    1005: 21,
    1007: 23,
    1028: 26,
    1021: 700,
    1022: 701,
    1182: 1082,
    1115: 1114,
    1185: 1184,
    1231: NUMERIC,
    1009: 25,  # text
    1015: 1043,  # varchar
    1014: 1042,  # char(n)
    2951: 2950,  # uuid
    199: 114,  # json
    3807: 3802,  # jsonb
}
"""From the type of an array to that of its elements."""


@dataclass(frozen=True)
class Column:
    """A column as it is captured. `oid` and `modifier` are of its type or, for a domain, of what it is made of."""

    name: str
    oid: int
    modifier: int
    key: bool = False

    @property
    def kind(self) -> pa.DataType:
        if self.oid in ARRAYS:
            return pa.list_(_plain(ARRAYS[self.oid], self.modifier)[0])
        kind, _ = _plain(self.oid, self.modifier)
        return pa.string() if self.key and pa.types.is_decimal(kind) else kind

    def read(self, data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
        """The column's values, from where they stand as text."""
        if self.oid in ARRAYS:
            return _lists(data, starts, lengths, *_plain(ARRAYS[self.oid], self.modifier))
        kind, read = _plain(self.oid, self.modifier)
        if self.key and pa.types.is_decimal(kind):
            return values.texts(data, starts, lengths)
        return read(data, starts, lengths, kind)


def _plain(oid: int, modifier: int) -> tuple[pa.DataType, Reader]:
    if oid == NUMERIC and modifier >= 4:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if precision <= 38 and scale <= precision:  # a scale below zero reads as a large one here
            return pa.decimal128(precision, scale), values.decimals
    return PLAIN.get(oid, (pa.string(), values.strings))


def _lists(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType, read: Reader) -> pa.Array:
    inner, found, sizes, bounds = values.elements(data, starts, lengths)
    items = read(inner, found, sizes, kind)
    offsets = pa.py_buffer(bounds.astype("int32"))
    return pa.Array.from_buffers(pa.list_(kind), len(starts), [values.valid_of(lengths), offsets], children=[items])
