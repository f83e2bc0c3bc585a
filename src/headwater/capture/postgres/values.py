"""From fields, which are places in a buffer of text, to Arrow arrays: whole columns at a time, no Python per value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture.compiled import NULL, Bytes, Ints, Lengths, compiled
from headwater.typenames import TIMESTAMP

DAY_US = 86_400_000_000
LAST_DAY, FIRST_DAY = 2_932_896, -719_162
"""9999-12-31 and 0001-01-01 in days since 1970: the ends of Python's calendar, and so infinity here."""


def texts(data: Bytes, starts: Ints, lengths: Lengths) -> pa.Array:
    offsets, copied = _gathered(data, starts, lengths)
    return pa.Array.from_buffers(
        pa.string(), len(starts), [_valid(lengths), pa.py_buffer(offsets), pa.py_buffer(copied)]
    )


def integers(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    numbers = _integers(data, starts, lengths)
    array = pa.Array.from_buffers(pa.int64(), len(starts), [_valid(lengths), pa.py_buffer(numbers)])
    return array if kind == pa.int64() else array.cast(kind)


def floats(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    return texts(data, starts, lengths).cast(kind)


def decimals(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    """NaN, which a decimal cannot be, is null."""
    return texts(data, starts, _numbers_only(data, starts, lengths)).cast(kind)


def booleans(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    bits = np.packbits(_booleans(data, starts, lengths), bitorder="little")
    return pa.Array.from_buffers(kind, len(starts), [_valid(lengths), pa.py_buffer(bits)])


def binaries(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    offsets, decoded = _from_hex(data, starts, lengths)
    return pa.Array.from_buffers(kind, len(starts), [_valid(lengths), pa.py_buffer(offsets), pa.py_buffer(decoded)])


def moments(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    micros = _moments(data, starts, lengths)
    return pa.Array.from_buffers(TIMESTAMP, len(starts), [_valid(lengths), pa.py_buffer(micros)])


def days(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    numbers = (_moments(data, starts, lengths) // DAY_US).astype(np.int32)
    return pa.Array.from_buffers(pa.date32(), len(starts), [_valid(lengths), pa.py_buffer(numbers)])


def strings(data: Bytes, starts: Ints, lengths: Lengths, kind: pa.DataType) -> pa.Array:
    return texts(data, starts, lengths)


def elements(data: Bytes, starts: Ints, lengths: Lengths) -> tuple[Bytes, Ints, Lengths, Ints]:
    """The elements of arrays, as fields of their own in a buffer of their own, and where each array's begin.

    An array of several dimensions gives its elements one after the other.
    """
    offsets, copied = _gathered(data, starts, lengths)
    count = _count_elements(copied, offsets)
    found, sizes, bounds = _find_elements(copied, offsets, count)
    return copied, found, sizes, bounds


def valid_of(lengths: Lengths) -> pa.Buffer | None:
    return _valid(lengths)


def _valid(lengths: Lengths) -> pa.Buffer | None:
    there: npt.NDArray[np.bool_] = lengths >= 0
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))


@compiled
def _gathered(data: Bytes, starts: Ints, lengths: Lengths) -> tuple[Lengths, Bytes]:
    total = 0
    offsets = np.empty(len(starts) + 1, np.int32)
    for row in range(len(starts)):
        offsets[row] = total
        total += max(lengths[row], 0)
    offsets[len(starts)] = total
    copied = np.empty(total, np.uint8)
    for row in range(len(starts)):
        start, to = starts[row], offsets[row]
        for byte in range(offsets[row + 1] - to):
            copied[to + byte] = data[start + byte]
    return offsets, copied


@compiled
def _integers(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    numbers = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        if at >= end:
            continue
        negative = data[at] == 45
        if negative:
            at += 1
        number = 0
        while at < end:
            number = number * 10 - (int(data[at]) - 48)  # below zero there is one more than above
            at += 1
        numbers[row] = number if negative else -number
    return numbers


@compiled
def _booleans(data: Bytes, starts: Ints, lengths: Lengths) -> Bytes:
    found = np.zeros(len(starts), np.uint8)
    for row in range(len(starts)):
        found[row] = lengths[row] > 0 and data[starts[row]] == 116
    return found


@compiled
def _numbers_only(data: Bytes, starts: Ints, lengths: Lengths) -> Lengths:
    kept = lengths.copy()
    for row in range(len(starts)):
        if lengths[row] > 0 and data[starts[row]] == 78:
            kept[row] = NULL
    return kept


@compiled
def _from_hex(data: Bytes, starts: Ints, lengths: Lengths) -> tuple[Lengths, Bytes]:
    offsets = np.empty(len(starts) + 1, np.int32)
    total = 0
    for row in range(len(starts)):
        offsets[row] = total
        total += max(lengths[row] - 2, 0) // 2
    offsets[len(starts)] = total
    decoded = np.empty(total, np.uint8)
    for row in range(len(starts)):
        at = starts[row] + 2
        for to in range(offsets[row], offsets[row + 1]):
            high, low = int(data[at]), int(data[at + 1])
            high = high - 48 if high < 58 else high - 87
            low = low - 48 if low < 58 else low - 87
            decoded[to] = high * 16 + low
            at += 2
    return offsets, decoded


@compiled
def _days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a day of the Gregorian calendar, by eras of 400 years that begin in March."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@compiled
def _digits(data: Bytes, at: int, end: int) -> tuple[int, int]:
    number = 0
    while at < end and 48 <= data[at] < 58:
        number = number * 10 + (int(data[at]) - 48)
        at += 1
    return number, at


@compiled
def _moments(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    """`2024-05-01 12:30:00.25+00`, `2024-05-01`, `0044-03-15 BC`, `infinity`, in µs since 1970, UTC."""
    first, last = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
    micros = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        if at >= end:
            continue
        if data[at] == 105 or data[at] == 45:  # 'i', '-'
            micros[row] = last if data[at] == 105 else first
            continue
        if data[end - 1] == 67:  # BC
            micros[row] = first
            continue
        year, at = _digits(data, at, end)
        month, at = _digits(data, at + 1, end)
        day, at = _digits(data, at + 1, end)
        if year > 9999:
            micros[row] = last
            continue
        total = _days_of(year, month, day) * DAY_US
        if at < end and data[at] == 32:
            hour, at = _digits(data, at + 1, end)
            minute, at = _digits(data, at + 1, end)
            second, at = _digits(data, at + 1, end)
            total += ((hour * 60 + minute) * 60 + second) * 1_000_000
            if at < end and data[at] == 46:
                begin = at + 1
                fraction, at = _digits(data, begin, end)
                for _ in range(6 - (at - begin)):
                    fraction *= 10
                total += fraction
        micros[row] = min(max(total, first), last)
    return micros


@compiled
def _count_elements(data: Bytes, offsets: Lengths) -> int:
    count = 0
    for row in range(len(offsets) - 1):
        commas = 1
        for at in range(offsets[row], offsets[row + 1]):
            commas += data[at] == 44
        count += commas
    return count


@compiled
def _find_elements(data: Bytes, offsets: Lengths, most: int) -> tuple[Ints, Lengths, Ints]:
    r"""`{1,NULL,"a \"b\", c"}`: escapes are undone in place; a bound before it, `[0:1]={...}`, is skipped."""
    starts, lengths = np.empty(most, np.int64), np.empty(most, np.int32)
    bounds = np.empty(len(offsets), np.int64)
    count = 0
    for row in range(len(offsets) - 1):
        bounds[row] = count
        at, end = int(offsets[row]), int(offsets[row + 1])
        if at < end and data[at] == 91:
            while data[at] != 61:
                at += 1
            at += 1
        while at < end:
            byte = data[at]
            if byte == 123 or byte == 125 or byte == 44:  # { } ,
                at += 1
                continue
            quoted = byte == 34
            if quoted:
                at += 1
            start = written = at
            while at < end:
                byte = data[at]
                if quoted and byte == 34:
                    break
                if not quoted and (byte == 44 or byte == 125):
                    break
                if byte == 92:
                    at += 1
                data[written] = data[at]
                written += 1
                at += 1
            if quoted:
                at += 1
            length = written - start
            null = not quoted and length == 4 and data[start] == 78 and data[start + 1] == 85
            starts[count], lengths[count] = start, NULL if null else length
            count += 1
    bounds[len(offsets) - 1] = count
    return starts[:count], lengths[:count], bounds
