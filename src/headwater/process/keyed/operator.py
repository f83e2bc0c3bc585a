"""The seam between operators and whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headwater.process.keyed.arrangement import Arrangement, Shape


class State(Protocol):
    """An operator's arrangements in one bucket, each under a name that the operator chose."""

    def arrangement(self, name: str, shape: Shape) -> Arrangement: ...


class Operator(Protocol):
    """A function of sets: the same state and changes give the same answer, whatever the order of chunks or rows.

    `step` is called once a batch and bucket, with the changes of each input port that has any; it may be called again
    with the same changes on the same earlier state (a retried batch), and must then answer the same rows. What it
    retracts is what it emitted before. It keeps nothing outside `state`.
    """

    @property
    def revision(self) -> int:
        """Raised when the same inputs would give other state or output: part of every view's fingerprint."""

    def step(self, state: State, changes: Mapping[int, pa.Table]) -> pa.Table: ...
