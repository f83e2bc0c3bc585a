"""Numbers, dates and decimals as they stand in row images of the binlog, or as text in a result: whole columns at once.

Dates that no calendar has (`0000-00-00`, a day 0, the 31st of February) are NO_DAY.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headwater.capture.compiled import Bytes, Ints, Lengths, compiled

DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
"""Bytes that so many digits of a decimal take."""
NO_DAY = np.iinfo(np.int64).min

Halves = npt.NDArray[np.uint64]


@compiled
def little(data: Bytes, starts: Ints, lengths: Lengths, signed: bool) -> Ints:
    """Whole numbers, least byte first; the bits of larger ones than int64 holds, if they are not signed."""
    found = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        width = lengths[row]
        value = np.int64(0)
        for place in range(width):
            value |= np.int64(data[starts[row] + place]) << (8 * place)
        if signed and 0 < width < 8 and data[starts[row] + width - 1] & 0x80:
            value -= np.int64(1) << (8 * width)
        found[row] = value
    return found


@compiled
def _big(data: Bytes, at: int, width: int) -> int:
    value = np.int64(0)
    for place in range(width):
        value = (value << 8) | np.int64(data[at + place])
    return int(value)


@compiled
def _day(year: int, month: int, day: int) -> int:
    """Days since 1970 of a day that the calendar has; else NO_DAY."""
    if year < 1 or month < 1 or month > 12 or day < 1:
        return NO_DAY
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 31
    if month == 2:
        longest = 29 if leap else 28
    elif month in (4, 6, 9, 11):
        longest = 30
    if day > longest:
        return NO_DAY
    years = year - 1 if month <= 2 else year
    era = years // 400
    of_era = years - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@compiled
def _fraction(data: Bytes, at: int, width: int) -> int:
    """Microseconds, kept in hundredths, ten thousandths or millionths of a second."""
    value = _big(data, at, width)
    return value * 10000 if width == 1 else value * 100 if width == 2 else value


@compiled
def image_days(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    found = np.full(len(starts), NO_DAY)
    for row in range(len(starts)):
        if lengths[row] == 3:
            at = starts[row]
            value = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
            found[row] = _day(value >> 9, (value >> 5) & 15, value & 31)
    return found


@compiled
def image_datetimes(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    found = np.full(len(starts), NO_DAY)
    for row in range(len(starts)):
        if lengths[row] >= 5:
            value = _big(data, starts[row], 5) - 0x8000000000
            date, clock = value >> 17, value & 0x1FFFF
            months = date >> 5
            day = _day(months // 13, months % 13, date & 31)
            if day != NO_DAY:
                seconds = (clock >> 12) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
                micros = _fraction(data, starts[row] + 5, lengths[row] - 5)
                found[row] = (day * 86400 + seconds) * 1000000 + micros
    return found


@compiled
def image_timestamps(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    found = np.full(len(starts), NO_DAY)
    for row in range(len(starts)):
        if lengths[row] >= 4:
            seconds = _big(data, starts[row], 4)
            micros = _fraction(data, starts[row] + 4, lengths[row] - 4)
            if seconds or micros:
                found[row] = seconds * 1000000 + micros
    return found


@compiled
def image_times(data: Bytes, starts: Ints, lengths: Lengths) -> Ints:
    """Lengths of time, in microseconds."""
    found = np.zeros(len(starts), np.int64)
    for row in range(len(starts)):
        width = lengths[row]
        if width >= 3:
            value = _big(data, starts[row], width) - (np.int64(0x800000) << (8 * (width - 3)))
            size = abs(value)
            clock = size >> (8 * (width - 3))
            fraction = size & ((np.int64(1) << (8 * (width - 3))) - 1)
            micros = fraction * 10000 if width == 4 else fraction * 100 if width == 5 else fraction
            seconds = (clock >> 12) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
            found[row] = (seconds * 1000000 + micros) * (-1 if value < 0 else 1)
    return found


@compiled
def text_moments(data: Bytes, starts: Ints, lengths: Lengths, only_days: bool) -> Ints:
    """`2024-02-29` or `2024-02-29 12:34:56.789`, in days or in microseconds."""
    found = np.full(len(starts), NO_DAY)
    for row in range(len(starts)):
        if lengths[row] < 10:
            continue
        parts, part, at = np.zeros(7, np.int64), 0, starts[row]
        digits = 0
        for place in range(lengths[row]):
            letter = np.int64(data[at + place]) - 48
            if 0 <= letter <= 9:
                parts[part] = parts[part] * 10 + letter
                digits += part == 6
            else:
                part += 1
        day = _day(parts[0], parts[1], parts[2])
        if day == NO_DAY:
            continue
        if only_days:
            found[row] = day
        else:
            seconds = parts[3] * 3600 + parts[4] * 60 + parts[5]
            found[row] = (day * 86400 + seconds) * 1000000 + parts[6] * 10 ** (6 - digits)
    return found


@compiled
def image_decimals(data: Bytes, starts: Ints, lengths: Lengths, whole: int, scale: int) -> Halves:
    """The digits as whole numbers of 128 bits, the lower half first. Kept in groups of nine digits, and inverted if
    they are negative; the first bit is inverted always."""
    found = np.zeros((len(starts), 2), np.uint64)
    limbs = np.zeros(4, np.uint64)
    for row in range(len(starts)):
        if lengths[row] <= 0:
            continue
        at = starts[row]
        negative = (data[at] & 0x80) == 0
        flip, first = np.uint8(0xFF if negative else 0), at
        limbs[:] = 0
        groups = (whole % 9 > 0) + whole // 9 + scale // 9 + (scale % 9 > 0)
        for group in range(groups):
            digits = 9
            if group == 0 and whole % 9 > 0:
                digits = whole % 9
            elif group == groups - 1 and scale % 9 > 0:
                digits = scale % 9
            value = np.uint64(0)
            for _ in range(DIGIT_BYTES[digits]):
                byte = data[at] ^ flip
                if at == first:
                    byte ^= np.uint8(0x80)
                value = (value << np.uint64(8)) | np.uint64(byte)
                at += 1
            carry, power = value, np.uint64(10**digits)
            for limb in range(4):
                carry += limbs[limb] * power
                limbs[limb] = carry & np.uint64(0xFFFFFFFF)
                carry >>= np.uint64(32)
        low, high = limbs[0] | limbs[1] << np.uint64(32), limbs[2] | limbs[3] << np.uint64(32)
        if negative:
            low, high = ~low + np.uint64(1), ~high
            if low == 0:
                high += np.uint64(1)
        found[row, 0], found[row, 1] = low, high
    return found


@compiled
def copy_runs(data: Bytes, starts: Ints, offsets: Ints, out: Bytes) -> None:
    for row in range(len(starts)):
        size = offsets[row + 1] - offsets[row]
        for place in range(size):
            out[offsets[row] + place] = data[starts[row] + place]
