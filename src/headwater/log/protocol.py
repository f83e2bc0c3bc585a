"""The narrow seam every backend implements and every other room uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log.position import AppendNumber, Epoch, Position
from headwater.log.spec import Settings, TopicSpec

Expected = Mapping[str, Mapping[tuple[Any, ...], int]]
"""For each versioned topic, the versions that the appender believes its keys to have; 0: never appended."""


KEYED = "_http."
"""How the names of producers begin that stand for an idempotency key. Each makes one append, and is forgotten after the
topic's `keys_s`; all others are known for ever."""


@dataclass(frozen=True)
class Producer:
    """Who appends, in which incarnation. Sequences go on across epochs: the same (name, sequence) is one append."""

    name: str
    epoch: Epoch


@dataclass(frozen=True)
class Progress:
    """The range of inputs that an output append covers: after `start`, up to `end`."""

    start: Position
    end: Position


@dataclass(frozen=True)
class Part:
    """Records for one partition of one topic that an append is to add.

    Made by `Log.stage`: large ones are already durable in `file`, which nothing lists yet; small ones travel in `data`
    and become durable with the append itself. It pickles, so a task can stage and the driver append.
    """

    topic: str
    partition: int
    rows: int
    schema: int
    """Which version of the topic's schema the records have."""
    crc: int
    size: int
    max_time: int | None = None
    """The greatest event time among them, in µs."""
    file: str | None = None
    data: bytes | None = field(default=None, repr=False)
    keys: tuple[bytes, ...] = ()
    """In a versioned topic, the keys of the records."""


@dataclass(frozen=True)
class Appended:
    number: AppendNumber
    position: Position
    """The ends, in the partitions this append touched, right after it: the token of the write."""
    repeated: bool = False
    """True if this (producer, sequence) had been appended before; then all else is the first one's."""
    dropped: int = 0
    """How many of its records a full topic with `drop_newest` did not take."""


@dataclass(frozen=True)
class Covered:
    """The last append of a producer: what its output covers, and where the output stood then."""

    number: AppendNumber
    sequence: int
    progress: Progress
    epoch: Epoch


@dataclass(frozen=True)
class Snapshot:
    """An append boundary and the ends of some topics there."""

    number: AppendNumber
    position: Position


@dataclass(frozen=True)
class Extent:
    """Where a partition begins and ends, and what upkeep and bounds did to it."""

    start: int
    """The first offset that is still there."""
    end: int
    horizon: int
    """Below it only net sums (or newest rows) are left: reading must begin at `start` or at or above it."""
    dropped: int
    """Records that the bound of the topic dropped, oldest or newest."""


@dataclass(frozen=True)
class Pin:
    """What upkeep must leave of some topics: all at and after a position. It replaces the pin of that name."""

    name: str
    position: Position
    topics: tuple[str, ...]


class Log(Protocol):
    """Every method may be called from any thread and any process; nothing here outlives its call but what it says.

    Errors are those of `headwater.errors`; an append that raised has added nothing, except `StorageFailed`, after which
    the append is unknown until the log is opened again.
    """

    @property
    def url(self) -> str: ...

    def create(self, spec: TopicSpec) -> TopicSpec:
        """Make the topic, or return it as it is, if it was made alike; `TopicMismatch` if otherwise.

        Columns that the declaration has beyond the topic's are added, wider types widened (see `alter`).
        """

    def alter(self, name: str, *, schema: pa.Schema | None = None, settings: Settings | None = None) -> TopicSpec:
        """Evolve the schema (add nullable columns, widen types; else `SchemaRefused`) or change settings."""

    def delete(self, name: str) -> None:
        """Remove a topic and its records; `Pinned` while somebody depends on it."""

    def extents(self, name: str) -> Mapping[int, Extent]: ...

    def topic(self, name: str) -> TopicSpec: ...

    def topics(self) -> list[TopicSpec]: ...

    def stage(self, topic: str, partition: int, records: pa.RecordBatch, *, producer: Producer | None = None) -> Part:
        """Prepare records for an append. With a producer, refused at once if it is fenced."""

    def stage_rows(self, topic: str, rows: Sequence[Mapping[str, Any]]) -> list[Part]:
        """The same for dicts: typed, checked, and split by the hash of their key. In each part in their order."""

    def peek(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The records of a part that is staged and not appended yet."""

    def append(
        self,
        parts: Sequence[Part],
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        progress: Progress | None = None,
        expect: Expected | None = None,
        pin: Pin | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        """One atomic act. Acknowledged only when durable. See docs/guarantees.md for the steps.

        The pin is set in the same act: of an append that is refused it stays as it was, with a repeated one it moves.
        `timeout_s` is how long a full topic that blocks may hold it up; then `Full`.
        """

    def append_rows(self, topic: str, rows: Sequence[Mapping[str, Any]], *, turn: int = 0) -> Appended:
        """Append dicts to one topic; what other threads append at the same moment may be written together with it.

        Rows without a key go to the partition that it is the `turn` of.
        """

    def append_each(
        self, topic: str, several: Sequence[Sequence[Mapping[str, Any]]], *, turn: int = 0
    ) -> list[Appended | HeadwaterError | None]:
        """Several appends of dicts to one topic, written together; each has its own answer or is refused alone.

        None: nothing was done, for the topic keeps versions or a bound. That takes an append of its own.
        """

    def begin(self, producer: str) -> Producer:
        """Take the next epoch of a producer: from now on every older one is refused."""

    def check(self, producer: Producer) -> None:
        """Raise `Fenced` if a newer epoch was taken."""

    def covered(self, producer: str, *, at: AppendNumber | None = None, sequence: int | None = None) -> Covered | None:
        """The producer's last append with progress, or its last one up to the append number `at`, or that one."""

    def snapshot(
        self,
        topics: Sequence[str],
        *,
        after: Snapshot | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Snapshot:
        """The newest append boundary; with `max_rows`, the last one at which no more rows than that came since `after`,
        but always at least one append further if there is one. `max_bytes` likewise, about, of rows as they rest."""

    def max_time(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest event time, in µs, among the records at smaller offsets, also of those that upkeep removed."""

    def position_from(self, topic: str, time_us: int) -> Mapping[int, int]:
        """In each partition, the offset of the first record that was appended at that time or later."""

    def versions(self, topic: str, keys: Sequence[tuple[Any, ...]]) -> list[int]: ...

    def pin(self, name: str, position: Position, *, topics: Sequence[str]) -> None:
        """Set a `Pin` by itself."""

    def unpin(self, name: str) -> None: ...

    def position_at(self, topic: str, number: AppendNumber) -> Mapping[int, int]:
        """Where each partition ended right after that append."""

    def append_after(self, topic: str, position: Position) -> AppendNumber | None:
        """The first append that goes beyond the position in this topic; None if none does."""

    def scan(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        metadata: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The records at offsets start <= o < end, in order. Asking past the end is not an error.

        `Missed` if retention has removed some of them; `Compacted` if it begins inside of what was compacted. A scan
        that has begun is not disturbed by upkeep.
        """

    def changed(self) -> int:
        """Another number than the same thread was told before, if anything in the log has changed; microseconds."""

    def wait(self, after: AppendNumber, timeout_s: float) -> AppendNumber:
        """The newest append number, as soon as it is greater than `after`, or when the time is up."""

    def close(self) -> None: ...
