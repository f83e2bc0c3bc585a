"""Which changes of the stream a later snapshot has shown already.

Told by transaction ids, as PostgreSQL itself does: `pg_current_snapshot()` is xmin:xmax:running. A transaction of the
stream has committed; the snapshot has shown it if its id is below xmax and was not running then. Positions in the WAL
would not do: a commit is written a moment before others see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture.compiled import Ints
from headwater.capture.ranges import Range
from headwater.capture.state import State

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Seen:
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Seen:
        _, xmax, running = text.split(":")
        return cls(int(xmax), tuple(int(each) for each in running.split(",") if each))

    def shows(self, transactions: Ints) -> Mask:
        """Ids in the stream have 32 bits and wrap around: those less than half a circle behind are older."""
        behind = (self.xmax - transactions) & 0xFFFFFFFF
        older = (behind > 0) & (behind < 1 << 31)
        shown: Mask = older & ~np.isin(transactions, [each & 0xFFFFFFFF for each in self.running])
        return shown


@dataclass(frozen=True)
class Overlap:
    """A range of a table that was read from a later snapshot than the stream had come to: changes that it has shown are
    left out of the stream, which has told all of them once it is past `until`."""

    table: str
    range: Range
    seen: str
    until: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Overlap:
        return cls(told["table"], Range(**told["range"]), told["seen"], told["until"])


def overlaps_in(state: State) -> list[Overlap]:
    return [Overlap.from_json(told) for told in state.get("overlaps") or []]


def not_shown(overlaps: Sequence[Overlap], keys: pa.Array, transactions: Ints) -> Mask:
    """The changes that none of these snapshots has shown; `keys` are the first columns of their rows' keys."""
    left = np.ones(len(transactions), np.bool_)
    for each in overlaps:
        left &= ~(Seen.parse(each.seen).shows(transactions) & each.range.holds(keys))
    return left
