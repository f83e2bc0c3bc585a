"""What a capture writes into the log: rows, its state, and the position of the source that they cover, in one append.

    1  Rows are staged: large ones are durable files that nothing lists yet.
    2  One append lists them, with the state and the position. It goes on exactly where the last one ended.
    3  Only then may the source be told that it can forget what lies before the position.
A crash before 2 leaves nothing but files; after it, everything. A newer run of the same capture fences this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.capture.position import SourcePosition
from headwater.capture.state import State
from headwater.log.position import Position
from headwater.log.protocol import Appended, Log, Part, Producer, Progress
from headwater.log.spec import TopicSpec
from headwater.log.splitting import split


def producer_of(capture: str) -> str:
    return f"capture.{capture}"


def position_in(log: Log, capture: str) -> SourcePosition | None:
    """How far a capture has come; None if it has never appended anything."""
    covered = log.covered(producer_of(capture))
    return SourcePosition.from_log(capture, covered.progress.end) if covered is not None else None


class Appender:
    """The one writer of a capture, from the moment it is made until a newer one is. `patience_s` is how long an append
    waits for room in a full topic."""

    def __init__(self, log: Log, capture: str, *, patience_s: float = 30.0) -> None:
        self.log = log
        self._patience_s = patience_s
        self.capture = capture
        self.state = State(log, capture)
        self.state.make()
        self.producer: Producer = log.begin(producer_of(capture))
        self.state.load()
        covered = log.covered(self.producer.name)
        self._sequence = covered.sequence + 1 if covered is not None else 0
        self.end = covered.progress.end if covered is not None else Position()
        self.position = SourcePosition.from_log(capture, self.end)
        self.rows = 0

    def stage(self, spec: TopicSpec, batch: pa.RecordBatch) -> list[Part]:
        """Step 1. The batch has the topic's stored schema."""
        apart = split(batch, spec.key, spec.partitions)
        return [self.log.stage(spec.name, way, rows, producer=self.producer) for way, rows in apart.items()]

    def append(self, parts: Sequence[Part], position: SourcePosition | None = None, **state: Any) -> Appended:
        """Step 2; without a position, it stays where it is."""
        position = position or self.position
        done = self.append_at(parts, position.in_log(self.capture), **state)
        self.position = position
        return done

    def append_at(self, parts: Sequence[Part], end: Position, **state: Any) -> Appended:
        """Step 2, for a source whose position is one of the log itself: a topic."""
        told = self.state.parts(self.producer, **state) if state else []
        done = self.log.append(
            [*parts, *told],
            producer=self.producer,
            sequence=self._sequence,
            progress=Progress(self.end, end),
            timeout_s=self._patience_s,
        )
        self.state.remember(**state)
        self._sequence += 1
        self.end = end
        self.rows += sum(part.rows for part in parts) - done.dropped
        return done
