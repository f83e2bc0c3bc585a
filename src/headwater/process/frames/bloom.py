"""Bloom filters as binary columns that merge: "was this value ever there?", never a wrong no, seldom a wrong yes.

Spark refuses Python aggregates in a streaming query, and its own Bloom filter is internal and cannot be merged. What it
does have is an aggregate that sets bits of a bitmap, `bitmap_construct_agg`, of fixed size (4 KB). So ours is the
*partitioned* form: k slices of equal length; a value sets one bit in each. A slice is one such bitmap, or several side
by side, cut to length:

    "HWB" 0x01 | k: 1 byte | slice 0 | slice 1 | ... | slice k-1         all slices have (length - 5) / k bytes
    bit of a value in slice i:  pmod(xxhash64(xxhash64(text of the value), i), bits of a slice); lowest bit first

After n values a slice of s bits has a share 1 - (1 - 1/s)^n of its bits set, and a value that was never there finds all
k set with that share to the power of k. k is log2(1/p) rounded up, s the least multiple of 8 that keeps it within p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import BadFrame

if TYPE_CHECKING:
    from pyspark.sql import Column

_MAGIC = b"HWB\x01"
_HEADER = len(_MAGIC) + 1
_BITMAP = 4096
"""Bytes of one of Spark's bitmaps."""
_BITMAPS = 64
"""The most that one filter takes: each is an aggregate of its own, and 4 KB of state in every group."""


@dataclass(frozen=True)
class Shape:
    slices: int
    slice_bytes: int

    @property
    def header(self) -> bytes:
        return _MAGIC + bytes([self.slices])

    @property
    def size(self) -> int:
        return _HEADER + self.slices * self.slice_bytes

    def bitmaps(self) -> list[tuple[int, int, int]]:
        """(slice, first byte inside of it, bytes) of each bitmap, in the order in which they stand."""
        starts = range(0, self.slice_bytes, _BITMAP)
        return [(i, at, min(_BITMAP, self.slice_bytes - at)) for i in range(self.slices) for at in starts]


def shape_of(expected: int, false_positives: float) -> Shape:
    """The smallest filter that says yes wrongly at most that often after `expected` different values."""
    if expected < 1 or not 0 < false_positives < 1:
        raise BadFrame(
            what=f"a Bloom filter for expected={expected!r}, false_positives={false_positives!r}",
            do="Expect at least one value, and a share of false positives between 0 and 1, such as 0.01",
        )
    slices = max(1, math.ceil(math.log2(1 / false_positives)))
    share = false_positives ** (1 / slices)  # of bits set in a slice
    bits = 1 / -math.expm1(math.log1p(-share) / expected)
    shape = Shape(slices, math.ceil(bits / 8))
    if slices > 255 or len(shape.bitmaps()) > _BITMAPS:
        raise BadFrame(
            what=f"a Bloom filter for {expected} values at {false_positives:g} takes {shape.size // 1024} KB, "
            f"the most is {_BITMAPS * _BITMAP // 1024} KB",
            do="Group by a column more (a hash of the value, say), or allow more false positives",
        )
    return shape


def bloom_filter(column: Column | str, *, expected: int = 10_000, false_positives: float = 0.01) -> Column:
    """Aggregate: the filter of a column's values; nulls are left out. 12 KB as it stands."""
    shape = shape_of(expected, false_positives)
    bits = shape.slice_bytes * 8
    positions = [_position(_hash(column), F.lit(i), F.lit(bits)) for i in range(shape.slices)]
    parts = []
    for i, at, length in shape.bitmaps():
        inside = positions[i] - at * 8
        mine = _column(column).isNotNull() & (inside >= 0) & (inside < length * 8)
        parts.append(_cut(F.bitmap_construct_agg(F.when(mine, inside)), length))
    return F.concat(F.lit(shape.header), *parts)


def bloom_merge(filters: Column | str, *, expected: int = 10_000, false_positives: float = 0.01) -> Column:
    """Aggregate: one filter of many, byte for byte the filter of all their values.

    The filters must have been made with the same two numbers; otherwise the query stops and says so.
    """
    shape = shape_of(expected, false_positives)
    told = F.raise_error(
        F.lit("bloom_merge: a filter made with another expected or false_positives, or not one of ours")
    )
    given = _column(filters)
    alike = (F.length(given) == shape.size) & (_bytes(given, 1, _HEADER) == F.lit(shape.header))
    checked = F.when(given.isNull() | alike, given).otherwise(told)
    parts = []
    for i, at, length in shape.bitmaps():
        start = 1 + _HEADER + i * shape.slice_bytes + at
        parts.append(_cut(F.bitmap_or_agg(_bytes(checked, start, length)), length))
    return F.concat(F.lit(shape.header), *parts)


def might_contain(filters: Column | str, value: Column | str) -> Column:
    """False: the value was never there. True: it was, or it is one of the few false positives. Null of null.

    The filter itself says how it was made. Values are compared by their text, whatever their type: 7 and "7" are one.
    """
    given = _column(filters)
    slices = _byte(given, F.lit(_HEADER))
    slice_bytes = ((F.length(given) - _HEADER) / slices).cast("int")
    hashed = _hash(value)

    def bit(i: Column) -> Column:
        position = _position(hashed, i, slice_bytes * 8)
        at = i * slice_bytes + F.shiftright(position, 3).cast("int")
        return F.getbit(_byte(given, at + _HEADER + 1), position.bitwiseAND(7).cast("int")) == 1

    ours = _bytes(given, 1, len(_MAGIC)) == F.lit(_MAGIC)
    told = F.raise_error(F.lit("might_contain: the column is not one of bloom_filter's or bloom_merge's"))
    asked = F.forall(F.sequence(F.lit(0), slices - 1), bit)
    known = given.isNotNull() & _column(value).isNotNull()
    return F.when(known, F.when(ours, asked).otherwise(told.cast("boolean")))


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _hash(column: Column | str) -> Column:
    return F.xxhash64(_column(column).cast("string"))


def _position(hashed: Column, i: Column, bits: Column) -> Column:
    return F.pmod(F.xxhash64(hashed, i), bits.cast("long"))


def _bytes(binary: Column, start: int, length: int) -> Column:
    return F.substring(binary, start, length)


def _cut(bitmap: Column, length: int) -> Column:
    return bitmap if length == _BITMAP else _bytes(bitmap, 1, length)


def _byte(binary: Column, place: Column) -> Column:
    """The byte at a place that counts from 1, as a number: read as Latin-1, a byte is its character's number."""
    return F.ascii(F.decode(F.substring(binary, place, F.lit(1)), "ISO-8859-1"))
