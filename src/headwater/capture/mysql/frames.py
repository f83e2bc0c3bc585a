"""Where values stand: in row images of the binlog, and in rows of a result. Compiled: no Python runs per row.

A row image is a bitmap of nulls, then the values that are not null, each of a fixed width or behind its length:

    rows event    columns that are present (a bitmap; two in an update: before, after), row images to its end
    update        the images before and after, in turn
A row of a result is a packet: uint24 length, uint8 number, then of each value its length (251 is null) and its text.
"""

from __future__ import annotations

import numpy as np

from headwater.capture.compiled import NULL, Bytes, Ints, Lengths, compiled

ABSENT = -2
"""The length of a value that the image leaves out."""
INSERTED, DELETED, UPDATED = 1, -1, 0
END_OF_ROWS, FAILED, TOO_LARGE = -1, -2, -3
LARGEST = 0xFFFFFF
"""A packet of this size goes on in the next."""


@compiled
def _number(data: Bytes, at: int, width: int) -> int:
    """Little-endian."""
    found = np.int64(0)
    for place in range(width):
        found |= np.int64(data[at + place]) << (8 * place)
    return int(found)


@compiled
def _walk(
    data: Bytes, at: int, present: int, widths: Ints, prefixes: Ints, starts: Ints, lengths: Lengths, row: int
) -> int:
    """One image; a row below zero only finds its end."""
    columns = len(widths)
    there = 0
    for column in range(columns):
        there += (data[present + column // 8] >> (column % 8)) & 1
    nulls, place = at, 0
    at += (there + 7) // 8
    for column in range(columns):
        length = ABSENT
        if (data[present + column // 8] >> (column % 8)) & 1:
            if (data[nulls + place // 8] >> (place % 8)) & 1:
                length = NULL
            elif prefixes[column]:
                length = _number(data, at, prefixes[column])
                at += prefixes[column]
            else:
                length = widths[column]
            place += 1
        if row >= 0:
            starts[column, row] = at
            lengths[column, row] = length
        if length > 0:
            at += length
    return at


@compiled
def count_images(data: Bytes, begins: Ints, ends: Ints, kinds: Ints, widths: Ints, prefixes: Ints) -> int:
    """How many row images these events have, an update's two counted as two."""
    starts, lengths = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int32)
    bitmap, rows = (len(widths) + 7) // 8, 0
    for event in range(len(begins)):
        before = begins[event]
        after = before + bitmap if kinds[event] == UPDATED else before
        at = after + bitmap
        while at < ends[event]:
            at = _walk(data, at, before, widths, prefixes, starts, lengths, -1)
            rows += 1
            if kinds[event] == UPDATED:
                at = _walk(data, at, after, widths, prefixes, starts, lengths, -1)
                rows += 1
    return rows


@compiled
def find_fields(
    data: Bytes, begins: Ints, ends: Ints, kinds: Ints, widths: Ints, prefixes: Ints, rows: int
) -> tuple[Ints, Lengths, Lengths, Ints]:
    """Of each value where it starts and how long it is; of each image its sign and its event."""
    starts = np.zeros((len(widths), rows), np.int64)
    lengths = np.zeros((len(widths), rows), np.int32)
    signs, events = np.zeros(rows, np.int32), np.zeros(rows, np.int64)
    bitmap, row = (len(widths) + 7) // 8, 0
    for event in range(len(begins)):
        before = begins[event]
        after = before + bitmap if kinds[event] == UPDATED else before
        at = after + bitmap
        while at < ends[event]:
            at = _walk(data, at, before, widths, prefixes, starts, lengths, row)
            signs[row] = -1 if kinds[event] == UPDATED else kinds[event]
            events[row] = event
            row += 1
            if kinds[event] == UPDATED:
                at = _walk(data, at, after, widths, prefixes, starts, lengths, row)
                signs[row] = 1
                events[row] = event
                row += 1
    return starts, lengths, signs, events


@compiled
def count_rows(data: Bytes, at: int, filled: int) -> tuple[int, int, int]:
    """Rows of a result that are whole, where they end, and what comes next: END_OF_ROWS, FAILED, TOO_LARGE or 0."""
    rows = 0
    while at + 4 <= filled:
        size = _number(data, at, 3)
        if size == LARGEST:
            return rows, at, TOO_LARGE
        if at + 4 + size > filled:
            break
        if data[at + 4] == 0xFE and size < 9:
            return rows, at, END_OF_ROWS
        if data[at + 4] == 0xFF:
            return rows, at, FAILED
        at += 4 + size
        rows += 1
    return rows, at, 0


@compiled
def split_rows(data: Bytes, rows: int, columns: int) -> tuple[Ints, Lengths]:
    """Of each value of a result where its text starts and how long it is."""
    starts = np.zeros((columns, rows), np.int64)
    lengths = np.zeros((columns, rows), np.int32)
    at = 0
    for row in range(rows):
        at += 4
        for column in range(columns):
            length = _number(data, at, 1)
            at += 1
            if length == 251:
                length = NULL
            elif length == 252:
                length = _number(data, at, 2)
                at += 2
            elif length == 253:
                length = _number(data, at, 3)
                at += 3
            elif length == 254:
                length = _number(data, at, 8)
                at += 8
            starts[column, row] = at
            lengths[column, row] = length
            if length > 0:
                at += length
    return starts, lengths
