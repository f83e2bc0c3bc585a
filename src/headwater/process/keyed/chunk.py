"""A chunk of state: rows sorted by hash, immutable, under a name that no other has; and references to parts of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import google_crc32c
import numpy as np
import pyarrow as pa
from pyarrow import ipc

from headwater.log.keyhash import Hashes
from headwater.process.keyed.combining import HASH
from headwater.process.keyed.fixed import Words, all_words

CHUNK_BYTES = 8 * 1024 * 1024
SMALL_BYTES = 64 * 1024
"""Up to here it takes longer to count bytes beforehand than to make room for them."""
_CHECKSUM = 8


@dataclass(frozen=True)
class ChunkRef:
    """The rows of a chunk with hashes from `low` to `high`: all of it, or what is left after a part was merged away.

    The id is chosen by whoever keeps it, and ends with the checksum of the content.
    """

    id: str
    rows: int
    bytes: int  # of the whole chunk
    low: int
    high: int  # inclusive, like low: the hashes at both ends
    whole: int  # rows of the whole chunk

    @property
    def checksum(self) -> str:
        return self.id[-_CHECKSUM:]

    @property
    def size(self) -> int:
        """The bytes of the rows that are meant, about."""
        return self.bytes * self.rows // self.whole

    def within(self, hashes: Hashes) -> tuple[int, int]:
        """Where the rows that are meant begin and end among sorted hashes.

        The bounds as uint64: numpy would compare a Python int with uint64 as floats, slowly and not exactly.
        """
        low, high = np.uint64(self.low), np.uint64(self.high)
        return int(np.searchsorted(hashes, low, "left")), int(np.searchsorted(hashes, high, "right"))


Run = tuple[ChunkRef, ...]
"""Chunks with disjoint, ascending ranges of hashes."""


def run_size(run: Run) -> int:
    return sum(ref.size for ref in run)


@dataclass(frozen=True)
class Chunk:
    rows: pa.Table
    hashes: Hashes
    """Those of the rows, as numpy has them."""

    @classmethod
    def of(cls, data: pa.Buffer) -> Chunk:
        rows = ipc.open_file(data).read_all()
        return cls(rows, rows[HASH].to_numpy())

    @cached_property
    def words(self) -> list[Words] | None:
        """All columns, if numpy has them."""
        return all_words(self.rows)


class Loaded(Protocol):
    """Where chunks are read."""

    def load(self, ref: ChunkRef) -> Chunk: ...


class Chunks(Loaded, Protocol):
    """Where chunks are kept."""

    def save(self, data: pa.Buffer, chunk: Chunk) -> str:
        """Answers the id under which it is kept. `data` is what the chunk is on disk."""

    def drop(self, ref: ChunkRef) -> None: ...


def write_run(rows: pa.Table, chunks: Chunks) -> Run:
    """Rows sorted by hash, saved as chunks of at most about `CHUNK_BYTES`."""
    rows = rows.combine_chunks()
    run = []
    for piece in _cut(rows, max(1, math.ceil(rows.nbytes / CHUNK_BYTES))):
        data, chunk = _encoded(piece), Chunk(piece, piece[HASH].to_numpy())
        low, high = int(chunk.hashes[0]), int(chunk.hashes[-1])
        run.append(ChunkRef(chunks.save(data, chunk), piece.num_rows, data.size, low, high, piece.num_rows))
    return tuple(run)


def divide(run: Run, bound: int, chunks: Chunks) -> tuple[list[pa.Table], Run]:
    """The rows of a run with hashes up to `bound`, and what is left of the run. No chunk is written for that."""
    rows, rest = [], []
    for ref in run:
        if ref.low > bound:
            rest.append(ref)
            continue
        chunk = chunks.load(ref)
        low, high = ref.within(chunk.hashes)
        middle = min(high, int(np.searchsorted(chunk.hashes, np.uint64(bound), "right")))
        rows.append(chunk.rows.slice(low, middle - low))
        if middle < high:
            rest.append(replace(ref, rows=high - middle, low=int(chunk.hashes[middle])))
    return rows, tuple(rest)


def is_of(data: Any, ref: ChunkRef) -> bool:
    """Whether this is the content of that chunk."""
    return checksum(data) == ref.checksum


def checksum(data: Any) -> str:
    """With which the id of a chunk ends."""
    return f"{google_crc32c.value(data):0{_CHECKSUM}x}"


def _cut(rows: pa.Table, pieces: int) -> list[pa.Table]:
    """Pieces of about the same size; rows of one hash stay in one piece, so ranges are disjoint."""
    if pieces == 1:
        return [rows]
    hashes = rows[HASH].to_numpy()
    targets = hashes[(np.arange(1, pieces) * rows.num_rows) // pieces]
    bounds = [0, *np.unique(np.searchsorted(hashes, targets)).tolist(), rows.num_rows]
    return [rows.slice(a, b - a) for a, b in pairwise(bounds) if b > a]


def _encoded(rows: pa.Table) -> pa.Buffer:
    if rows.nbytes < SMALL_BYTES:
        growing = pa.BufferOutputStream()
        _write(rows, growing)
        return growing.getvalue()
    counting = pa.MockOutputStream()
    _write(rows, counting)
    data = pa.allocate_buffer(counting.size())
    _write(rows, pa.FixedSizeBufferWriter(data))
    return data


def _write(rows: pa.Table, into: Any) -> None:
    with ipc.new_file(into, rows.schema) as writer:
        writer.write_table(rows)
