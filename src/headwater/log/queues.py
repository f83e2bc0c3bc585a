"""Queues: consumers that share the records of a topic, each record acknowledged alone.

    1  `take` hands out records under a lease: first those given back or whose lease ran out, then the next ones.
    2  Who holds the lease acknowledges (done), releases (again, by anyone) or rejects (to the dead-letter topic); work
       that takes long extends it before it runs out.
    3  A lease that runs out is a release. A record that was taken `attempts` times goes to the dead-letter topic.

So each record is handed out at least once and to one holder at a time. Order is not kept: workers overtake each other.
A record leaves the queue and enters the dead-letter topic in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol

import pyarrow as pa

from headwater.errors import QueueNotFound
from headwater.log.evolution import conform
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Part, Progress, Snapshot

LEASE_S = 60.0
ATTEMPTS = 5
LOOK_S = 0.1
"""How often a waiting `take` looks for leases that ran out."""
REPLAY_ROWS = 10_000


@dataclass(frozen=True)
class QueueSpec:
    name: str
    topic: str
    lease_s: float
    attempts: int
    dead: str
    """The dead-letter topic: like the queue's topic, and this queue's alone."""


@dataclass(frozen=True)
class Delivery:
    """A record in the hand of one worker until `until`."""

    topic: str
    partition: int
    offset: int
    record: Mapping[str, Any]
    attempt: int
    """1 the first time it is handed out."""
    receipt: str
    """Names this handing out; without it nobody can settle the record."""
    until: datetime


@dataclass(frozen=True)
class QueueLag:
    partition: int
    cursor: int
    """The next offset that was never handed out."""
    end: int
    waiting: int
    """Never handed out yet."""
    taken: int
    """Under a lease now."""
    returned: int
    """Released, or their lease ran out: the next to be handed out, or to go to the dead-letter topic."""
    missed: int
    """Removed from the topic before anyone acknowledged them: `take` raises `Missed` until `skip`."""


class Queues(Protocol):
    """Every method may be called from any thread and any process. `QueueNotFound` where there is none."""

    def create(
        self,
        queue: str,
        topic: str,
        *,
        lease_s: float = LEASE_S,
        attempts: int = ATTEMPTS,
        dead: str | None = None,
        start: Literal["start", "end"] = "start",
    ) -> QueueSpec:
        """Make the queue and its dead-letter topic, `<queue>.dead` if not named; or return it as it is, if it was made
        alike, else `QueueMismatch`. `start` counts only when it is made. Streams only: changes of a table belong
        together, and workers would tear them apart."""

    def queues(self) -> list[QueueSpec]: ...

    def take(self, queue: str, count: int) -> list[Delivery]:
        """Up to `count` records, now; an empty list if there are none. `Missed`, with the range, if some were
        removed from the topic before they were acknowledged."""

    def acknowledge(self, queue: str, receipt: str) -> None:
        """Done: it is never handed out again. `LeaseLost` if somebody else may have it; a lease that ran out, but whose
        record nobody took since, still counts."""

    def extend(self, queue: str, receipt: str, *, lease_s: float | None = None) -> datetime:
        """Hold it for another `lease_s` from now, the queue's own if not given; returns until when. Called again and
        again while the work goes on. It is no attempt and never shortens a lease. `LeaseLost` as of `acknowledge`."""

    def release(self, queue: str, receipt: str) -> None:
        """Let anyone have it at once; after the last attempt it goes to the dead-letter topic instead."""

    def reject(self, queue: str, receipt: str) -> None:
        """To the dead-letter topic, whatever attempt it is."""

    def lag(self, queue: str) -> list[QueueLag]: ...

    def skip(self, queue: str) -> dict[int, tuple[int, int]]:
        """After `Missed`: give up what is no longer there; the range of offsets (end exclusive) in each partition."""

    def remove(self, queue: str) -> None:
        """Forget the queue, leases and all. Its topic and its dead-letter topic stay."""


class Queue:
    """A queue in the user's hand, which must be there already (`Queues.create`). For any number of threads."""

    def __init__(self, log: Log, queues: Queues, name: str) -> None:
        self._log = log
        self._queues = queues
        self.name = name

    def take(self, count: int = 1, *, wait_s: float = 0.0) -> list[Delivery]:
        """Up to `count` records, as soon as there are any; an empty list when the time is up."""
        deadline = time.monotonic() + wait_s
        while True:
            newest = self._log.snapshot([]).number
            taken = self._queues.take(self.name, count)
            left = deadline - time.monotonic()
            if taken or left <= 0:
                return taken
            self._log.wait(newest, min(left, LOOK_S))

    def acknowledge(self, delivery: Delivery) -> None:
        self._queues.acknowledge(self.name, delivery.receipt)

    def extend(self, delivery: Delivery, *, lease_s: float | None = None) -> Delivery:
        """The same delivery with the later `until`; its receipt stays."""
        return replace(delivery, until=self._queues.extend(self.name, delivery.receipt, lease_s=lease_s))

    def release(self, delivery: Delivery) -> None:
        self._queues.release(self.name, delivery.receipt)

    def reject(self, delivery: Delivery) -> None:
        self._queues.reject(self.name, delivery.receipt)

    def lag(self) -> list[QueueLag]:
        return self._queues.lag(self.name)

    def dead(self) -> int:
        """How many records of the dead-letter topic were not replayed yet."""
        spec = self._spec()
        done, end = self._replayed(), self._log.snapshot([spec.dead]).position
        partitions = range(self._log.topic(spec.dead).partitions)
        return sum(end.offset(spec.dead, p) - done.offset(spec.dead, p) for p in partitions)

    def replay(self, *, max_rows: int | None = None, from_retained: bool = False) -> int:
        """Append what the dead-letter topic has to the queue's topic again, and so to the queue; returns how many.

        Each dead letter once: how far it came is stored with the append, so a replay that was interrupted goes on
        there, and of two at a time one is `Fenced`. All readers of the topic see the records again, not the queue
        alone. It ends where an append of dead letters ends, at `max_rows` or the first append beyond. `Missed` if dead
        letters were removed before, unless `from_retained`.
        """
        spec = self._spec()
        producer = self._log.begin(self._producer)
        last = self._log.snapshot([spec.dead]).position
        total = 0
        while max_rows is None or total < max_rows:
            covered = self._log.covered(self._producer)
            here = covered.progress.end if covered else Position()
            if here.covers(last):
                break
            limit = REPLAY_ROWS if max_rows is None else min(REPLAY_ROWS, max_rows - total)
            end = self._log.snapshot([spec.dead], after=Snapshot(AppendNumber(0), here), max_rows=limit).position
            parts = self._again(spec, here, end, from_retained=from_retained)
            sequence = covered.sequence + 1 if covered else 0
            self._log.append(parts, producer=producer, sequence=sequence, progress=Progress(here, end))
            total += sum(part.rows for part in parts)
        return total

    def _again(self, spec: QueueSpec, here: Position, end: Position, *, from_retained: bool) -> list[Part]:
        """In the partitions they came from: the two topics have the same."""
        stored = self._log.topic(spec.topic).stored
        parts = []
        for partition, extent in self._log.extents(spec.dead).items():
            low, high = here.offset(spec.dead, partition), end.offset(spec.dead, partition)
            if from_retained:
                low = max(low, extent.start)
            if low < high:
                batches = [conform(batch, stored) for batch in self._log.scan(spec.dead, partition, low, high)]
                for batch in pa.Table.from_batches(batches, stored).combine_chunks().to_batches():
                    parts.append(self._log.stage(spec.topic, partition, batch))
        return parts

    @property
    def _producer(self) -> str:
        return f"{self.name}.replay"

    def _replayed(self) -> Position:
        covered = self._log.covered(self._producer)
        return covered.progress.end if covered else Position()

    def _spec(self) -> QueueSpec:
        known = {spec.name: spec for spec in self._queues.queues()}
        if self.name not in known:
            raise QueueNotFound(queue=self.name, known=known)
        return known[self.name]
