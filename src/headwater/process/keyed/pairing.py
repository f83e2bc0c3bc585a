"""Pairs of rows with equal keys, as places in two tables: by hash first, then by the keys themselves.

Whole columns at a time, so that what a join answers is put together by taking rows: of a large side of which every row
finds its one partner, that is nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process.keyed.bykey import Mask, same_at, taken
from headwater.process.keyed.fixed import Ints


@dataclass(frozen=True)
class Side:
    rows: pa.Table
    hashes: Hashes
    key: tuple[str, ...]


@dataclass(frozen=True)
class Pairs:
    left: pa.Table
    right: pa.Table
    at_left: Ints
    at_right: Ints

    def __len__(self) -> int:
        return len(self.at_left)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Each of them a column of one of the sides, which have no names in common but their weights."""
        left = taken(self.left.select([name for name in names if name in self.left.schema.names]), self.at_left)
        right = taken(self.right.select([name for name in names if name not in left.schema.names]), self.at_right)
        return pa.table({name: (left if name in left.schema.names else right).column(name) for name in names})

    def weights(self, column: str) -> Ints:
        left, right = self.left[column].to_numpy(), self.right[column].to_numpy()
        product: Ints = left[self.at_left] * right[self.at_right]
        return product

    def only(self, chosen: Mask | Ints) -> Pairs:
        return Pairs(self.left, self.right, self.at_left[chosen], self.at_right[chosen])


def paired(left: Side, right: Side) -> Pairs:
    """As SQL's equality has it: null equals nothing."""
    if len(left.hashes) >= len(right.hashes):
        at_left, at_right = _by_hash(left.hashes, right.hashes)
    else:
        at_right, at_left = _by_hash(right.hashes, left.hashes)
    found = Pairs(left.rows, right.rows, at_left, at_right)
    same = same_at(left.rows, at_left, right.rows, at_right, list(zip(left.key, right.key, strict=True)))
    for own in left.key:
        if left.rows[own].null_count:
            same &= left.rows[own].is_valid().to_numpy()[at_left]
    return found if same.all() else found.only(same)


def _by_hash(large: Hashes, small: Hashes) -> tuple[Ints, Ints]:
    """Places of equal hashes, ascending in the large one."""
    if not len(small):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(small, kind="stable")
    ordered = small[order]
    low = np.searchsorted(ordered, large)
    if (ordered[1:] != ordered[:-1]).all():
        hit = ordered[np.minimum(low, len(ordered) - 1)] == large
        return np.flatnonzero(hit), order[low[hit]]
    counts = np.searchsorted(ordered, large, "right") - low
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(np.arange(len(large)), counts), order[np.repeat(low, counts) + within]
