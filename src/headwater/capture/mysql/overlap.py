"""Which changes of the stream a snapshot has shown already.

Every snapshot is of a known place in the binlog, where a transaction ends: it has shown what stands before, and nothing
of what stands after. So ranges can be read from different snapshots, each later than where the stream begins.
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
class Overlap:
    """A range of a table that was read as of `until`: its changes up to there are left out of the stream."""

    table: str
    range: Range
    until: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Overlap:
        return cls(told["table"], Range(**told["range"]), told["until"])


def overlaps_in(state: State) -> list[Overlap]:
    return [Overlap.from_json(told) for told in state.get("overlaps") or []]


def not_shown(overlaps: Sequence[Overlap], keys: pa.Array, places: Ints) -> Mask:
    """The changes that none of these has shown; `keys` are the first columns of their rows' keys."""
    left = np.ones(len(places), np.bool_)
    for each in overlaps:
        left &= ~((places <= each.until) & each.range.holds(keys))
    return left


def all_shown_until(overlaps: Sequence[Overlap]) -> int:
    """Up to where all changes of a table have been shown, whatever their key; 0 if not all of its ranges are there."""
    ordered = sorted(overlaps, key=lambda each: (each.range.low is not None, each.range.low or 0))
    if not ordered or ordered[0].range.low is not None:
        return 0
    reach = ordered[0].range.high
    for each in ordered[1:]:
        if reach is None:
            break
        if each.range.low is not None and each.range.low > reach:
            return 0
        reach = None if each.range.high is None else max(reach, each.range.high)
    return min(each.until for each in overlaps) if reach is None else 0
