"""Where appends end inside of a chunk that upkeep made of many: so boundaries and times survive rolling up."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_CODEC = pa.Codec("zstd")


@dataclass(frozen=True)
class Bounds:
    """One entry an append that the chunk has records of, in order: its number, the offset of its end, its time (µs)."""

    appends: Ints
    ends: Ints
    times: Ints

    @classmethod
    def of_one(cls, append: int, end: int, time: int) -> Bounds:
        return cls(*(np.array([value], np.int64) for value in (append, end, time)))

    @classmethod
    def joined(cls, parts: list[Bounds]) -> Bounds:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("appends", "ends", "times")))

    def encode(self) -> bytes:
        """Differences compress to next to nothing: 3 numbers an append, then zstd; the count stands in front."""
        deltas = np.concatenate([np.diff(column, prepend=0) for column in (self.appends, self.ends, self.times)])
        return len(self.appends).to_bytes(8, "little") + bytes(_CODEC.compress(deltas.astype("<i8").tobytes()))

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        count = int.from_bytes(data[:8], "little", signed=True)
        if count < 0:
            count, plain = -count, data[8:]
        else:
            plain = _CODEC.decompress(data[8:], decompressed_size=24 * count, asbytes=True)
        columns: Any = np.frombuffer(plain, "<i8").reshape(3, count).cumsum(axis=1)
        return cls(*columns)

    def end_at(self, number: int) -> int | None:
        """The end of the last append up to this number, None if all are later."""
        place = int(np.searchsorted(self.appends, number, "right"))
        return int(self.ends[place - 1]) if place else None

    def between(self, start: int, end: int) -> Bounds:
        """Those of appends that have offsets in start <= o < end; the last one ends there, as far as this part goes."""
        first, last = int(np.searchsorted(self.ends, start, "right")), int(np.searchsorted(self.ends, end, "left"))
        ends = np.append(self.ends[first:last], end)
        return Bounds(self.appends[first : last + 1], ends, self.times[first : last + 1])

    def times_of(self, offsets: Ints) -> Ints:
        return np.take(self.times, np.searchsorted(self.ends, offsets, "right"))


def encode_few(appends: Sequence[int], ends: Sequence[int], time: int) -> bytes:
    """Those of a group of appends at one time, not compressed: a count below zero says so."""
    count = len(appends)
    columns = (appends, ends, [time] * count)
    deltas = [value - before for column in columns for value, before in zip(column, (0, *column), strict=False)]
    return struct.pack(f"<{1 + 3 * count}q", -count, *deltas)
