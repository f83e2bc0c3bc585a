"""What is remembered of an arrangement: which chunks, in which runs, and how far merges have come.

{"runs": [[ref, ...], ...], "merges": [[tier, [[ref, ...], ...], [ref, ...]], ...]}
ref = [id, rows, bytes, low, high, whole]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headwater.log.keyhash import Hashes
from headwater.process.keyed.chunk import ChunkRef, Run, run_size
from headwater.process.keyed.merging import Merge


@dataclass(frozen=True)
class Size:
    """How much is kept, counting what merging will yet combine."""

    rows: int
    bytes: int
    chunks: int
    runs: int


@dataclass(frozen=True)
class Manifest:
    runs: tuple[Run, ...] = ()
    merges: tuple[Merge, ...] = ()

    @cached_property
    def refs(self) -> Run:
        return (*(ref for run in self.runs for ref in run), *(ref for merge in self.merges for ref in merge.refs))

    @cached_property
    def ids(self) -> set[str]:
        return {ref.id for ref in self.refs}

    @cached_property
    def bounds(self) -> tuple[Hashes, Hashes]:
        """The lower and the upper ones of all chunks, in the order of `refs`."""
        refs = self.refs
        return np.array([ref.low for ref in refs], np.uint64), np.array([ref.high for ref in refs], np.uint64)

    @property
    def size(self) -> Size:
        refs = self.refs
        merging = sum(len(merge.sources) + bool(merge.into) for merge in self.merges)
        return Size(sum(ref.rows for ref in refs), run_size(refs), len(refs), len(self.runs) + merging)

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [_told(run) for run in self.runs],
            "merges": [[merge.tier, [_told(run) for run in merge.sources], _told(merge.into)] for merge in self.merges],
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Manifest:
        return cls(
            tuple(_read(run) for run in told["runs"]),
            tuple(
                Merge(tier, tuple(_read(run) for run in sources), _read(into)) for tier, sources, into in told["merges"]
            ),
        )


def _told(run: Run) -> list[list[Any]]:
    return [[ref.id, ref.rows, ref.bytes, ref.low, ref.high, ref.whole] for ref in run]


def _read(run: list[list[Any]]) -> Run:
    return tuple(ChunkRef(*ref) for ref in run)
