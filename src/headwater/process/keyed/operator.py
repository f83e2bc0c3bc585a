"""The seam between operators and whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.process.keyed.arrangement import Arrangement, Shape

FoundBy = tuple[tuple[str, ...], ...]


class State(Protocol):
    """An operator's arrangements in one bucket, each under a name that the operator chose."""

    def arrangement(self, name: str, shape: Shape) -> Arrangement: ...


@dataclass(frozen=True)
class Within:
    """One operator's part of a state that several share."""

    state: State
    prefix: str

    def arrangement(self, name: str, shape: Shape) -> Arrangement:
        return self.state.arrangement(self.prefix + name, shape)


@dataclass(frozen=True)
class Answer:
    rows: pa.Table
    """The changes of the operator's output, weighted."""
    dead: pa.Table | None = None
    """Records that could not be taken, in the columns of `deadletters.SCHEMA`."""


class Operator(Protocol):
    """A function of sets: the same state and changes give the same answer, whatever the order of chunks or rows.

    `step` is called at most once a batch and bucket, with the changes of each input port that has any; it may be called
    again with the same changes on the same earlier state (a retried batch), and must then answer the same rows. What it
    retracts is what it emitted before. It keeps nothing outside `state`.

    `watermark` is the event time in µs that the inputs have reached after this batch: a function of the log, never
    smaller than in an earlier batch, None if no input has one. A batch may bring a watermark and no changes at all.

    With `found_by` it says, for each port, by the hash of which columns all that it keeps is found. If rows are spread
    by the same ones, its state in all buckets may be given to it as one.

    An operator with `netted = True` never says of the same row that it came and that it went in one answer.
    """

    @property
    def revision(self) -> int:
        """Raised when the same inputs would give other state or output: part of every view's fingerprint."""

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer: ...
