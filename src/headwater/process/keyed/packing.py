"""Rows travel packed: one blob of Arrow a bucket, so that Spark moves bytes and never looks at rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from headwater.log.keyhash import grouped
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.parcels import opened
from headwater.process.keyed.spreading import bucket_of

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")
"""A blob crosses two processes and a shuffle: half the bytes are worth a gigabyte a second of compression."""


def pack(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def copied(table: pa.Table) -> int:
    """All of its bytes are read and written once, to where the last ones were; how many there are."""
    nowhere = _Nowhere()
    with ipc.new_stream(pa.PythonFile(nowhere, "w"), table.schema) as writer:
        writer.write_table(table)
    return nowhere.bytes


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self.bytes = 0
        self._room = np.empty(1 << 20, np.uint8)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        given = np.frombuffer(data, np.uint8)
        for start in range(0, len(given), len(self._room)):
            some = given[start : start + len(self._room)]
            self._room[: len(some)] = some
        self.bytes += len(given)
        return len(given)


def unpack(blobs: Iterable[bytes]) -> pa.Table:
    return pa.concat_tables([opened(blob) for blob in blobs])


def by_key(table: pa.Table, key: tuple[str, ...], ways: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows spread over `ways` buckets by the hash of their key; empty buckets are left out."""
    if table.num_rows == 0:
        return
    if ways == 1:
        yield 0, table
        return
    order, bounds = grouped(bucket_of(hashes_of(table, key), ways), ways)
    ordered = table.take(pa.array(order))
    for way in range(ways):
        rows = int(bounds[way + 1] - bounds[way])
        if rows:
            yield way, ordered.slice(int(bounds[way]), rows)


@lru_cache(maxsize=16)
def bucket_labels(buckets: int) -> tuple[int, ...]:
    """The number that stands for each bucket in Spark's `bucket` column.

    Spark spreads numbers over shuffle partitions by a hash of its own, which puts 0 to 3 three in one and one in the
    other of two. These labels land one in each of `buckets` partitions, and so evenly wherever the number of
    partitions divides that of the buckets.
    """
    labels: dict[int, int] = {}
    number = 0
    while len(labels) < buckets:
        labels.setdefault(_spark_hash(number) % buckets, number)
        number += 1
    return tuple(labels[place] for place in range(buckets))


def _spark_hash(number: int) -> int:
    """Spark's hash of an int: Murmur3, 32 bits, seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def rotated(word: int, by: int) -> int:
        return ((word << by) | (word >> (32 - by))) & mask

    word = rotated(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    mixed = (rotated(42 ^ word, 13) * 5 + 0xE6546B64) & mask ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & mask
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & mask
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed
