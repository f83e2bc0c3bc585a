"""The hash of a key: which partition, which bucket. Fixed for ever; a change of it is a new VERSION and a new topic.

Equal values of integer types of any width hash alike, so that keys of two topics meet. Whole columns at a time:
numpy over Arrow's buffers, about 20 ns a value, no Python per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VERSION = 1

Hashes = npt.NDArray[np.uint64]

_MUL1 = np.uint64(0xBF58476D1CE4E5B9)
_MUL2 = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6A09E667F3BCC909)
_TAIL = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)  # keeps the first n bytes of a word


def key_hash(columns: Sequence[Any]) -> Hashes:
    """One uint64 a row over these Arrow columns (arrays or chunked arrays of one length)."""
    total: Hashes | None = None
    with np.errstate(over="ignore"):
        for column in columns:
            hashes = _column_hash(column)
            total = hashes if total is None else _mix(total * _GOLDEN ^ hashes)
    assert total is not None, "a key has at least one column"
    return total


def spread(hashes: Hashes, ways: int) -> npt.NDArray[np.int64]:
    """0 <= n < ways for each hash, by its upper half: the lower one is free to order rows within a way."""
    return ((hashes >> np.uint64(32)) % np.uint64(ways)).astype(np.int64)


def distinct(hashes: Hashes) -> Hashes:
    """Sorted, each once. numpy's own `unique` goes through a hash table, seven times slower than sorting here."""
    ordered = np.sort(hashes)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def grouped(numbers: npt.NDArray[np.int64], ways: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order that brings rows of the same way together, keeping theirs, and the bounds of each way in it."""
    small = numbers.astype(np.uint16)  # numpy sorts 16 bits by radix
    return np.argsort(small, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(small, minlength=ways))))


def hash_one(values: Sequence[Any]) -> int | None:
    """The hash of one key given as Python values, or None where only whole columns are hashed.

    The same numbers as `key_hash`, at a tenth of its price for a single row.
    """
    total = None
    for value in values:
        if type(value) is int:
            word = _mix_one((value & _WORD) + 0x9E3779B97F4A7C15 & _WORD)
        elif type(value) is str:
            try:
                word = _text_hash(value.encode())
            except UnicodeEncodeError:  # half of a pair of surrogates
                return None
        else:
            return None
        total = word if total is None else _mix_one(total * 0x9E3779B97F4A7C15 & _WORD ^ word)
    return total


_WORD = 0xFFFFFFFFFFFFFFFF


def _text_hash(text: bytes) -> int:
    word = _mix_one(len(text) + 0x9E3779B97F4A7C15 & _WORD)
    for begin in range(0, len(text), 8):
        word = _mix_one((word ^ int.from_bytes(text[begin : begin + 8], "little")) + 0x9E3779B97F4A7C15 & _WORD)
    return word


def _mix_one(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def _mix(words: Hashes) -> Hashes:  # the finaliser of splitmix64
    words = (words ^ (words >> np.uint64(30))) * _MUL1
    words = (words ^ (words >> np.uint64(27))) * _MUL2
    return words ^ (words >> np.uint64(31))


def _column_hash(column: Any) -> Hashes:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _bytes_hash(array)
    else:
        hashes = _mix(_words(array, kind) + _GOLDEN)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _words(array: Any, kind: pa.DataType) -> Hashes:
    if pa.types.is_floating(kind):
        floats = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        floats = np.where(np.isnan(floats), np.nan, floats)
        return np.ascontiguousarray(floats).view(np.uint64)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.uint8()).cast(pa.int64())
    elif not (pa.types.is_int64(kind) or pa.types.is_uint64(kind)):
        array = array.cast(pa.int64())
    numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    words: Hashes = numbers.view(np.uint64)
    return words


def _bytes_hash(array: Any) -> Hashes:
    """Eight bytes of every value at a time: the data buffer seen as overlapping words, one gather a round."""
    count = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    if count == 0 or data_buffer is None or data_buffer.size == 0:
        lengths = np.zeros(count, np.int64)
        return _mix(lengths.astype(np.uint64) + _GOLDEN)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    low, high = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(high - low + 8, np.uint8)
    padded[: high - low] = np.frombuffer(data_buffer, np.uint8)[low:high]
    words: Hashes = np.ndarray((high - low + 1,), "<u8", padded, strides=(1,))
    starts = starts - low
    hashes = _mix(lengths.astype(np.uint64) + _GOLDEN)
    for begin in range(0, int(lengths.max(initial=0)), 8):
        rows = np.flatnonzero(lengths > begin)
        left = np.minimum(lengths[rows] - begin, 8)
        hashes[rows] = _mix((hashes[rows] ^ (words[starts[rows] + begin] & _TAIL[left])) + _GOLDEN)
    return hashes
