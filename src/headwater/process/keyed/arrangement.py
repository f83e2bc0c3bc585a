"""State as an arrangement: immutable chunks of rows sorted by the hash of their key, found by binary search.

A row has columns that identify it and *additive* columns (its weight, its sums); rows that agree in all identifying
columns stand for one row with the sums, and a row whose sums are all zero is not there. So a change is always a new
small chunk, never an edit, and merging chunks changes nothing that can be seen.

    arrangement = runs; run = chunks with disjoint, ascending ranges of hashes; chunk = rows sorted by `_hash`

A batch adds a run. When a tier (runs of about the same size) is full, its runs are merged into one of the next tier:
each row is rewritten once a tier, so the work over time is logarithmic in the size of the state.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from headwater.log.keyhash import Hashes, key_hash
from headwater.process import duck

HASH = "_hash"
CHUNK_BYTES = 8 * 1024 * 1024
FANOUT = 8
SMALLEST_TIER_BYTES = 64 * 1024


@dataclass(frozen=True)
class ChunkRef:
    """A chunk by the digest of its content: equal content is the same chunk, whoever wrote it in whichever try."""

    id: str
    rows: int
    bytes: int
    low: int
    high: int  # inclusive, like low: the hashes at both ends


Run = tuple[ChunkRef, ...]


class Chunks(Protocol):
    """Where chunks are kept."""

    def load(self, ref: ChunkRef) -> pa.Table: ...

    def save(self, ref: ChunkRef, data: bytes) -> None: ...

    def drop(self, ref: ChunkRef) -> None: ...


@dataclass(frozen=True)
class Shape:
    """What an arrangement holds: `schema` without the hash, `key` to find rows by, `additive` to sum them by.

    `compact` says that equal rows are worth summing whenever chunks merge; without it they are only when something is
    to be cancelled, which saves the work where rows hardly ever repeat.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    additive: tuple[str, ...]
    compact: bool

    @property
    def stored(self) -> pa.Schema:
        return pa.schema([pa.field(HASH, pa.uint64()), *self.schema])


class Arrangement:
    def __init__(self, shape: Shape, chunks: Chunks, runs: tuple[Run, ...] = ()) -> None:
        self.shape = shape
        self.runs = runs
        self._chunks = chunks

    def gather(self, wanted: Hashes) -> pa.Table:
        """All rows whose key has one of these hashes (sorted, unique). Other keys of the same hash come along."""
        found = [self.shape.stored.empty_table()]
        for ref in (ref for run in self.runs for ref in run):
            near = wanted[np.searchsorted(wanted, ref.low) : np.searchsorted(wanted, ref.high, "right")]
            if len(near):
                rows = self._chunks.load(ref)
                found.append(rows.take(pa.array(_positions(rows[HASH].to_numpy(), near))))
        return pa.concat_tables(found).drop_columns([HASH])

    def add(self, rows: pa.Table, hashes: Hashes | None = None) -> None:
        """Add rows to what is there. `hashes`, if the caller has them, are those of the key, row by row."""
        if rows.num_rows == 0:
            return
        if hashes is None:
            hashes = key_hash([rows.column(name) for name in self.shape.key])
        ordered = rows.select(self.shape.schema.names).cast(self.shape.schema)
        self._put(ordered.add_column(0, self.shape.stored.field(0), pa.array(hashes)), merged=False)
        while full := self._full_tier():
            self._merge(full)

    def _full_tier(self) -> tuple[Run, ...] | None:
        tiers: dict[int, list[Run]] = {}
        for run in self.runs:
            tiers.setdefault(_tier(run), []).append(run)
        full = [runs for _, runs in sorted(tiers.items()) if len(runs) >= FANOUT]
        return tuple(full[0]) if full else None

    def _merge(self, runs: tuple[Run, ...]) -> None:
        together = pa.concat_tables([self._chunks.load(ref) for run in runs for ref in run])
        self.runs = tuple(run for run in self.runs if run not in runs)
        before = {ref for run in runs for ref in run}
        self._put(together, merged=True)
        kept = {ref for run in self.runs for ref in run}
        for ref in sorted(before - kept, key=lambda ref: ref.id):
            self._chunks.drop(ref)

    def _put(self, rows: pa.Table, *, merged: bool) -> None:
        if merged and (self.shape.compact or _negative(rows, self.shape.additive)):
            rows = self._summed(rows)
        if rows.num_rows == 0:
            return
        order = np.argsort(rows[HASH].to_numpy(), kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        pieces = max(1, math.ceil(rows.nbytes / CHUNK_BYTES))
        run = []
        for piece in _cut(rows, pieces):
            ref, data = _encode(piece)
            self._chunks.save(ref, data)
            run.append(ref)
        self.runs = (*self.runs, tuple(run))

    def _summed(self, rows: pa.Table) -> pa.Table:
        additive = self.shape.additive
        own = [name for name in self.shape.stored.names if name not in additive]
        sums = ", ".join(f"sum({duck.quoted(name)})::BIGINT AS {duck.quoted(name)}" for name in additive)
        some = " OR ".join(f"sum({duck.quoted(name)}) <> 0" for name in additive)
        answer = duck.run(f"SELECT {duck.columns(own)}, {sums} FROM rows GROUP BY ALL HAVING {some}", rows=rows)
        return answer.select(self.shape.stored.names).cast(self.shape.stored)

    # The manifest: what Spark's state remembers of an arrangement.

    def manifest(self) -> list[list[dict[str, Any]]]:
        return [[asdict(ref) for ref in run] for run in self.runs]

    @classmethod
    def of(cls, shape: Shape, chunks: Chunks, manifest: list[list[dict[str, Any]]]) -> Arrangement:
        return cls(shape, chunks, tuple(tuple(ChunkRef(**ref) for ref in run) for run in manifest))


def digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _positions(hashes: Hashes, wanted: Hashes) -> np.ndarray[Any, Any]:
    """Where rows with the wanted hashes stand: the ranges found by binary search, laid end to end."""
    low, high = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
    sizes = high - low
    ends = np.cumsum(sizes)
    return np.repeat(low - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)


def _negative(rows: pa.Table, additive: tuple[str, ...]) -> bool:
    return any(bool((rows[name].to_numpy() < 0).any()) for name in additive)


def _tier(run: Run) -> int:
    size = sum(ref.bytes for ref in run)
    return max(0, math.ceil(math.log(max(size / SMALLEST_TIER_BYTES, 1), FANOUT)))


def _cut(rows: pa.Table, pieces: int) -> list[pa.Table]:
    """Pieces of about the same size; rows of one hash stay in one piece, so ranges are disjoint."""
    hashes = rows[HASH].to_numpy()
    targets = hashes[(np.arange(1, pieces) * rows.num_rows) // pieces]
    bounds = [0, *np.unique(np.searchsorted(hashes, targets)).tolist(), rows.num_rows]
    return [rows.slice(a, b - a) for a, b in pairwise(bounds) if b > a]


def _encode(rows: pa.Table) -> tuple[ChunkRef, bytes]:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    data = sink.getvalue().to_pybytes()
    hashes = rows[HASH]
    ref = ChunkRef(
        id=digest(data),
        rows=rows.num_rows,
        bytes=len(data),
        low=hashes[0].as_py(),
        high=hashes[-1].as_py(),
    )
    return ref, data
