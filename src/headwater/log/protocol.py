"""The narrow seam every backend implements and every other room uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from headwater.errors import BadName, BadSchema
from headwater.log.position import AppendNumber, Epoch, Position
from headwater.records import WEIGHT, stored_schema

Kind = Literal["stream", "table"]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,199}")


@dataclass(frozen=True)
class TopicSpec:
    """What a topic is. Fixed when it is made."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    time: str | None = None
    kind: Kind = "stream"
    partitions: int = 4

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadName(name=self.name)
        if self.kind not in ("stream", "table"):
            raise BadSchema(what=f"topic {self.name!r} has the kind {self.kind!r}", do="Use 'stream' or 'table'")
        if not 1 <= self.partitions <= 1024:
            raise BadSchema(what=f"topic {self.name!r} has {self.partitions} partitions", do="Use 1 to 1024")
        if self.kind == "table" and not self.key:
            raise BadSchema(what=f"table {self.name!r} has no key", do="Say key='...': a row of a table has a key")
        for column in (*self.key, *([self.time] if self.time else [])):
            if column not in self.schema.names:
                raise BadSchema(
                    what=f"topic {self.name!r} has no column {column!r} for its key or time",
                    do=f"Its columns: {', '.join(self.schema.names)}",
                )
        if self.time and not pa.types.is_timestamp(self.schema.field(self.time).type):
            raise BadSchema(what=f"the time column {self.time!r} is not a timestamp", do="Give it the type 'timestamp'")

    @property
    def weighted(self) -> bool:
        return self.kind == "table"

    @property
    def stored(self) -> pa.Schema:
        """The schema of the chunks: the user's columns and, in a table, the weight."""
        return stored_schema(self.schema, weighted=self.weighted)

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that may not be null."""
        own = (*self.key, *([self.time] if self.time else []))
        return (*own, WEIGHT) if self.weighted else own


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
    crc: int
    file: str | None = None
    data: bytes | None = field(default=None, repr=False)
    size: int = 0


@dataclass(frozen=True)
class Appended:
    number: AppendNumber
    position: Position
    """The ends, in the partitions this append touched, right after it: the token of the write."""
    repeated: bool = False
    """True if this (producer, sequence) had been appended before; then all else is the first one's."""


@dataclass(frozen=True)
class Covered:
    """The last append of a producer: what its output covers, and where the output stood then."""

    number: AppendNumber
    sequence: int
    progress: Progress


@dataclass(frozen=True)
class Snapshot:
    """An append boundary and the ends of some topics there."""

    number: AppendNumber
    position: Position


class Log(Protocol):
    """Every method may be called from any thread and any process; nothing here outlives its call but what it says.

    Errors are those of `headwater.errors`; an append that raised has added nothing, except `StorageFailed`, after which
    the append is unknown until the log is opened again.
    """

    @property
    def url(self) -> str: ...

    def create(self, spec: TopicSpec) -> TopicSpec:
        """Make the topic, or return it if it is there with the same spec; `TopicMismatch` if with another."""

    def topic(self, name: str) -> TopicSpec: ...

    def topics(self) -> list[TopicSpec]: ...

    def stage(self, topic: str, partition: int, records: pa.RecordBatch, *, producer: Producer | None = None) -> Part:
        """Prepare records for an append. With a producer, refused at once if it is fenced."""

    def append(
        self,
        parts: Sequence[Part],
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        progress: Progress | None = None,
    ) -> Appended:
        """One atomic act. Acknowledged only when durable. See docs/guarantees.md for the steps."""

    def begin(self, producer: str) -> Producer:
        """Take the next epoch of a producer: from now on every older one is refused."""

    def check(self, producer: Producer) -> None:
        """Raise `Fenced` if a newer epoch was taken."""

    def covered(self, producer: str, *, at: AppendNumber | None = None) -> Covered | None:
        """The producer's last append with progress, or its last one up to the append number `at`."""

    def snapshot(
        self, topics: Sequence[str], *, after: Snapshot | None = None, max_rows: int | None = None
    ) -> Snapshot:
        """The newest append boundary; with `max_rows`, the last one at which no more rows than that came since `after`,
        but always at least one append further if there is one."""

    def position_at(self, topic: str, number: AppendNumber) -> Mapping[int, int]: ...

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
        """The records at offsets start <= o < end, in order. Asking past the end is not an error."""

    def wait(self, after: AppendNumber, timeout_s: float) -> AppendNumber:
        """The newest append number, as soon as it is greater than `after`, or when the time is up."""

    def close(self) -> None: ...
