"""Which keys to look at again once event time has come so far: a second arrangement, ordered by that time.

A key has one entry. It is not moved when newer records come: when its time has come, whoever asked looks at the key,
and enters it again if it is not due yet. So an active key costs one look in the time it is retained, and the work of a
batch goes with what falls due in it. Looking at a key twice, or at one that is gone, changes nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes, distinct
from headwater.process.keyed.arrangement import Manifest, Shape
from headwater.process.keyed.fixed import Ints
from headwater.process.keyed.operator import State

NEVER = -(2**63)
"""Stands for the event time of what has none: it does not expire."""
_LAST = 2**63 - 1
_SIGN = np.uint64(1 << 63)
_KEY = "key_hash"
_SHAPE = Shape(pa.schema([(_KEY, pa.uint64())]), (_KEY,))


class Expiry:
    def __init__(self, state: State, name: str = "expiry") -> None:
        self._queue = state.arrangement(name, _SHAPE)

    def enter(self, hashes: Hashes, due: Ints) -> None:
        """Keys to be looked at as soon as the watermark is greater than `due`, each its own."""
        self._queue.add(pa.table({_KEY: hashes}), _order(due))

    def take(self, watermark: int) -> Hashes:
        """The hashes of the keys whose time has come, sorted, each once; their entries are gone with that."""
        if watermark <= NEVER:
            return np.zeros(0, np.uint64)
        found = self._queue.take_up_to(int(_order(np.array([watermark - 1], np.int64))[0]))
        return distinct(found[_KEY].to_numpy())


def first_due(manifest: Manifest) -> int | None:
    """The least time for which a key was entered in the queue of that manifest."""
    lows = [ref.low for ref in manifest.refs]
    return int(np.array([min(lows)], np.uint64).view(np.int64)[0] ^ -(2**63)) if lows else None


def after(times: Ints, span: int) -> Ints:
    """`times + span`, without passing the end of time."""
    return np.minimum(times, _LAST - span) + span


def _order(times: Ints) -> Hashes:
    """Times as unsigned numbers in the same order."""
    return times.view(np.uint64) ^ _SIGN
