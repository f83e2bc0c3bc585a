"""From what the server sends to where things are in it: messages, rows, fields. No byte is copied here.

frame      tag, int32 length (with itself), body                      the protocol's own
in a 'd'   'w', int64 start, int64 end, int64 clock, then a message   of logical decoding
           'k', int64 end, int64 clock, byte reply                    a sign of life
message    'B' 'C' 'R' 'Y' 'O' 'T' 'M', and of rows:
           'I' int32 relation, 'N' tuple
           'U' int32 relation, optionally 'K' tuple or 'O' tuple, 'N' tuple
           'D' int32 relation, 'K' tuple or 'O' tuple
tuple      int16 fields, each: 'n' null, 'u' unchanged, 't' int32 length and text
"""

from __future__ import annotations

import numpy as np

from headwater.capture.compiled import NULL, UNCHANGED, Bytes, Ints, Lengths, compiled

ALIVE = 107  # 'k'
HEAD = 25
"""Of a 'w' before its message."""


@compiled
def int32_at(data: Bytes, at: int) -> int:
    return (int(data[at]) << 24) | (int(data[at + 1]) << 16) | (int(data[at + 2]) << 8) | int(data[at + 3])


@compiled
def int64_at(data: Bytes, at: int) -> int:
    return (int32_at(data, at) << 32) | int32_at(data, at + 4)


@compiled
def count_frames(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    """How many whole frames there are, and where the last one ends."""
    count, at = 0, begin
    while at + 5 <= end:
        following = at + 1 + int32_at(data, at + 1)
        if following > end:
            break
        count, at = count + 1, following
    return count, at


@compiled
def find_messages(data: Bytes, begin: int, count: int) -> tuple[Bytes, Ints, Ints]:
    """Of each frame its kind, where its body begins, and where it ends.

    The kind of a 'w' is that of its message, which is then the body; of a 'k' it is 'k'; of other frames their tag,
    with the upper bit set: they are not of the stream of changes.
    """
    kinds, starts, ends = np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64)
    at = begin
    for number in range(count):
        body, following = at + 5, at + 1 + int32_at(data, at + 1)
        kind = data[at] | 128
        if data[at] == 100:  # 'd'
            if data[body] == 119:  # 'w'
                body += HEAD
                kind = data[body]
            else:
                kind = data[body]
        kinds[number], starts[number], ends[number] = kind, body, following
        at = following
    return kinds, starts, ends


@compiled
def find_bodies(data: Bytes, begin: int, count: int) -> tuple[Bytes, Ints, Ints]:
    """Of each frame its tag, where its body begins, and where it ends."""
    tags, starts, ends = np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64)
    at = begin
    for number in range(count):
        following = at + 1 + int32_at(data, at + 1)
        tags[number], starts[number], ends[number] = data[at], at + 5, following
        at = following
    return tags, starts, ends


@compiled
def _after_tuple(data: Bytes, at: int) -> int:
    fields = (int(data[at]) << 8) | int(data[at + 1])
    at += 2
    for _ in range(fields):
        kind = data[at]
        at += 1
        if kind == 116 or kind == 98:  # 't', 'b'
            at += 4 + int32_at(data, at)
    return at


@compiled
def find_rows(data: Bytes, kinds: Bytes, starts: Ints, first: int, last: int) -> tuple[Ints, Ints, Lengths, Ints]:
    """The rows in messages first <= n < last, in order: their relations, where their tuples are, +1 for a row that is
    there now and -1 for one that was (or its key), and the number of the message."""
    rows = 0
    for number in range(first, last):
        kind = kinds[number]
        if kind == 73 or kind == 68:  # 'I', 'D'
            rows += 1
        elif kind == 85:  # 'U'
            rows += 1 if data[starts[number] + 5] == 78 else 2
    relations, tuples = np.empty(rows, np.int64), np.empty(rows, np.int64)
    signs, messages = np.empty(rows, np.int32), np.empty(rows, np.int64)
    row = 0
    for number in range(first, last):
        kind, at = kinds[number], starts[number]
        if kind != 73 and kind != 68 and kind != 85:
            continue
        relation = int32_at(data, at + 1)
        at += 5
        if data[at] != 78:  # an old row or key
            relations[row], tuples[row], signs[row], messages[row] = relation, at + 1, -1, number
            row += 1
            if kind == 68:
                continue
            at = _after_tuple(data, at + 1)
        relations[row], tuples[row], signs[row], messages[row] = relation, at + 1, 1, number
        row += 1
    return relations, tuples, signs, messages


@compiled
def find_fields(data: Bytes, tuples: Ints, signs: Lengths, messages: Ints, fields: int) -> tuple[Ints, Lengths, int]:
    """Where each field of each row is and how long, a line a column; and how many remain unchanged and unknown.

    A value that an update has not changed is taken from the old row, if the whole old row came with it.
    """
    starts, lengths = np.empty((fields, len(tuples)), np.int64), np.empty((fields, len(tuples)), np.int32)
    unknown = 0
    for row in range(len(tuples)):
        at = tuples[row]
        given = (int(data[at]) << 8) | int(data[at + 1])
        at += 2
        paired = row > 0 and signs[row] == 1 and signs[row - 1] == -1 and messages[row] == messages[row - 1]
        for field in range(fields):
            start, length = at, NULL
            if field < given:
                kind = data[at]
                at += 1
                if kind == 116:
                    length = int32_at(data, at)
                    start = at + 4
                    at += 4 + length
                elif kind == 117:  # 'u'
                    length = UNCHANGED
                    if paired and lengths[field, row - 1] != NULL:
                        start, length = starts[field, row - 1], lengths[field, row - 1]
                    else:
                        unknown += 1
            starts[field, row], lengths[field, row] = start, length
    return starts, lengths, unknown


@compiled
def split_copied(data: Bytes, bodies: Ints, ends: Ints, fields: int) -> tuple[Ints, Lengths]:
    r"""The same of rows as COPY writes them in text: fields apart by tabs, `\N` a null, escapes undone in place."""
    starts, lengths = np.empty((fields, len(bodies)), np.int64), np.empty((fields, len(bodies)), np.int32)
    for row in range(len(bodies)):
        at, end = bodies[row], ends[row] - 1  # without the end of the line
        for field in range(fields):
            start = at
            while at < end and data[at] != 9 and data[at] != 92:
                at += 1
            written = at
            null = False
            while at < end and data[at] != 9:
                byte = data[at]
                if byte == 92:  # a backslash
                    at += 1
                    byte = data[at]
                    if byte == 78:  # 'N'
                        null = True
                    elif byte == 98:
                        byte = 8
                    elif byte == 102:
                        byte = 12
                    elif byte == 110:
                        byte = 10
                    elif byte == 114:
                        byte = 13
                    elif byte == 116:
                        byte = 9
                    elif byte == 118:
                        byte = 11
                data[written] = byte
                written += 1
                at += 1
            starts[field, row], lengths[field, row] = start, NULL if null else written - start
            at += 1
    return starts, lengths
