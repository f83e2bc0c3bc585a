"""Is SQLite's write-ahead log whole? Opening a log after a crash cuts the WAL at the first frame that is not valid.

That is right for an append that was being written: nobody was told of it. It is wrong if a byte of an older one has
changed since, and SQLite does not say so. Here the two are told apart before the log is opened:

    header   32 bytes: magic, format, page size, count, salt 1, salt 2, checksum 1, checksum 2
    frame    24 bytes: page, commit (0, or pages of the database), salt 1, salt 2, checksum 1, checksum 2; then the page

A frame's checksum goes on from that of the frame before. Every commit is synced before the next frame is written; so an
invalid frame is damage if after it a valid frame follows on a commit. A changed byte in the last append, or in the
header, cannot be told from a write that a crash cut short.
"""

from __future__ import annotations

import struct
from pathlib import Path

HEADER, FRAME = 32, 24
_LITTLE, _BIG = 0x377F0682, 0x377F0683
_MASK = 0xFFFFFFFF
_Sums = tuple[int, int]


def broken_frame(path: Path) -> int | None:
    """The number of the frame, from 0, whose damage hides later commits; None if there is none.

    Whoever writes meanwhile may begin the WAL anew while it is read: what is found must be found twice.
    """
    first = _scan(path)
    return first if first is not None and _scan(path) == first else None


def _scan(path: Path) -> int | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < HEADER:
        return None
    magic, _, size, _, *salts, _, _ = struct.unpack_from(">8I", content)
    sums: _Sums = struct.unpack_from(">2I", content, HEADER - 8)
    order = {_LITTLE: "<", _BIG: ">"}.get(magic)
    if order is None or not 512 <= size <= 65536 or _checksum(content[: HEADER - 8], (0, 0), order) != sums:
        return None
    broken: int | None = None
    committed = False
    for number in range((len(content) - HEADER) // (FRAME + size)):
        start = HEADER + number * (FRAME + size)
        _, commit, *own, one, two = struct.unpack_from(">6I", content, start)
        page = content[start + FRAME : start + FRAME + size]
        valid = own == salts and _checksum(content[start : start + 8] + page, sums, order) == (one, two)
        if not valid and broken is None:
            broken = number
        elif valid and broken is not None and committed:
            return broken
        committed, sums = commit != 0 and own == salts, (one, two)
    return None


def _checksum(data: bytes, sums: _Sums, order: str) -> _Sums:
    one, two = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        one = (one + left + two) & _MASK
        two = (two + right + one) & _MASK
    return one, two
