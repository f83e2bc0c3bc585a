"""Runs becoming one, a range of hashes at a time, so that no batch has to wait for a large merge to end.

    hashes      0 ........................ here ..................... 2^64
    into        [ merged already          ]
    sources                                [ what is left of run 1    ]
                                           [ what is left of run 2    ]  ...

Where a merge stands is part of the manifest: a batch that runs again takes the same steps, to the same chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.process.keyed.chunk import ChunkRef, Chunks, Run, run_size

FANOUT = 8
SMALL_FANOUT = 4
"""Of the smallest tier: those runs cost little to merge, and each is looked into in every batch."""
SMALLEST_TIER_BYTES = 64 * 1024
MERGE_BYTES = 8 * 1024 * 1024
"""What one `add` may merge, if it adds little."""
MERGE_FACTOR = 4
"""What one `add` may merge for each byte that it adds: as many as tiers can be above it, or merges fall behind."""
EVERYTHING = 2**64 - 1


@dataclass(frozen=True)
class Merge:
    tier: int
    sources: tuple[Run, ...]
    into: Run

    @property
    def left(self) -> int:
        """Bytes still to be merged."""
        return sum(run_size(run) for run in self.sources)

    @property
    def refs(self) -> tuple[ChunkRef, ...]:
        return (*(ref for run in self.sources for ref in run), *self.into)

    def worth(self, budget: int) -> bool:
        """A step that is too small would cut state into crumbs: it waits for a batch with more to spare."""
        return min(self.left, MERGE_BYTES // 2) <= budget

    def reach(self, budget: int, chunks: Chunks) -> int:
        """The hash up to which a step may go to take about so many bytes."""
        left = self.left
        if left <= budget:
            return EVERYTHING
        rows = max(1, budget * sum(ref.rows for run in self.sources for ref in run) // left)
        nearest = np.concatenate([_first_hashes(run, rows, chunks) for run in self.sources])
        return int(np.partition(nearest, rows - 1)[rows - 1]) if rows < len(nearest) else EVERYTHING


def full_tiers(runs: tuple[Run, ...], busy: set[int]) -> list[tuple[int, tuple[Run, ...]]]:
    """Tiers (runs of about the same size) that have enough runs to merge, the smallest first, but for the busy ones."""
    tiers: dict[int, list[Run]] = {}
    for run in runs:
        tiers.setdefault(tier_of(run), []).append(run)
    return [(tier, tuple(of)) for tier, of in sorted(tiers.items()) if len(of) >= _most(tier) and tier not in busy]


def _most(tier: int) -> int:
    return FANOUT if tier else min(FANOUT, SMALL_FANOUT)


def tier_of(run: Run) -> int:
    return max(0, math.ceil(math.log(max(run_size(run) / SMALLEST_TIER_BYTES, 1), FANOUT)))


def _first_hashes(run: Run, rows: int, chunks: Chunks) -> np.ndarray[Any, Any]:
    found, count = [np.zeros(0, np.uint64)], 0
    for ref in run:
        if count >= rows:
            break
        hashes = chunks.load(ref).hashes
        low, high = ref.within(hashes)
        found.append(hashes[low : min(high, low + rows - count)])
        count += len(found[-1])
    return np.concatenate(found)
