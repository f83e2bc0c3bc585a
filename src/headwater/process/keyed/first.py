"""Rows that cannot be among the first of their key need not travel, if that spares enough of them to be worth it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process import duck
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.top import Order, window

_PLACE = "_place"
_MARKS = 1 << 20
WORTH = 0.6
"""Looking for them pays if no more than this part of the rows is left."""


@dataclass(frozen=True)
class First:
    """Of the rows that agree in `key`, those that are among the `most` first by the beginning of an order."""

    key: tuple[str, ...]
    order: Order
    most: int

    @property
    def columns(self) -> list[str]:
        """Those by which they are found."""
        return list(dict.fromkeys([*self.key, *(name for _, needs in self.order for name in needs)]))

    def of(self, rows: pa.Table) -> pa.Table:
        if _distinct(hashes_of(rows, self.key)) * self.most > WORTH * rows.num_rows:
            return rows
        places = pa.array(np.arange(rows.num_rows, dtype=np.int32))
        narrow = rows.select(self.columns).append_column(_PLACE, places)
        rank = f"rank() OVER ({window(self.key, self.order)}) <= {self.most}"
        kept = duck.run(f"SELECT {_PLACE} FROM narrow QUALIFY {rank} ORDER BY {_PLACE}", narrow=narrow)
        return rows.take(kept[_PLACE]) if kept.num_rows < rows.num_rows else rows


def _distinct(hashes: Hashes) -> float:
    """About how many: by how many of some places they leave empty."""
    marks = np.zeros(_MARKS, bool)
    marks[hashes >> np.uint64(44)] = True
    empty = _MARKS - int(np.count_nonzero(marks))
    return _MARKS * math.log(_MARKS / empty) if empty else math.inf
