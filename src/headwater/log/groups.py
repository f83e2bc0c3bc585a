"""Groups: consumers that share the partitions of a topic and remember, together, how far they are.

    1  A member joins; every join, leave and death gives the partitions out anew and begins a new generation.
    2  It reads its partitions from the committed offsets on, and renews its session while it does.
    3  It commits with its generation. One of an older generation is refused: the partitions may be another's by now.

So each record is read at least once, by one member at a time as far as commits go: what was read and not committed is
read again after a rebalance. Offsets never go back without a reset, and never beyond the end of the log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Protocol

import pyarrow as pa

from headwater.clock import Clock, system_clock
from headwater.errors import NotAMember
from headwater.log.position import AppendNumber
from headwater.log.protocol import Extent, Log

Start = Literal["start", "end"]
SESSION_S = 30.0
LOOK_S = 1.0
"""How long a poll waits, at most, before it looks whether its partitions are still its own."""


@dataclass(frozen=True)
class Assignment:
    """What a member reads, and the generation in which it may commit that."""

    generation: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    name: str
    topic: str
    generation: int
    members: int


@dataclass(frozen=True)
class GroupMember:
    name: str
    partitions: tuple[int, ...]
    alive_until: datetime
    alive: bool
    """False: its session is over, and the next join or heartbeat of anyone removes it."""


@dataclass(frozen=True)
class Lag:
    """How far a group is behind in one partition. Offsets count, also those of records that upkeep has removed."""

    partition: int
    committed: int
    end: int
    lag: int
    missed: int
    """How much of the lag is gone for good: polling raises `Missed` until the group is reset."""
    member: str | None
    """Who reads it; None if nobody does."""


class Groups(Protocol):
    """Every method may be called from any thread and any process. A group belongs to one topic; its name on
    another topic is another group. `GroupNotFound` where nobody ever joined, `TopicNotFound` without the topic."""

    def join(
        self, group: str, topic: str, member: str, *, session_s: float = SESSION_S, start: Start = "start"
    ) -> Assignment:
        """Called once when a member starts, and again after `NotAMember`. Makes the group if it is not there, standing
        at `start`. Always a new generation, also for a member that is one already: an older process of that name is
        then refused. The others learn of it at their next heartbeat; until then they may read what is no longer theirs,
        but not commit it."""

    def heartbeat(self, group: str, topic: str, member: str, *, session_s: float = SESSION_S) -> Assignment:
        """Called a few times a session. Renews it, removes members whose session is over, and tells what is assigned
        now; `NotAMember` if this one was removed itself."""

    def assignment(self, group: str, topic: str, member: str) -> Assignment:
        """Called before each read: what `heartbeat` would tell, without writing. Renews nothing, removes nobody."""

    def leave(self, group: str, topic: str, member: str) -> None:
        """Called when a member ends. It commits nothing. Leaving twice is no error."""

    def commit(self, group: str, topic: str, member: str, *, generation: int, offsets: Mapping[int, int]) -> None:
        """All of the offsets (the next to read, exclusive ends) or, on any error, none. `Rebalanced` or `NotAMember`
        if the generation is over, `BadOffset` for one that goes back or beyond the end. The same again is no error."""

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """The next offset to read in each partition."""

    def members(self, group: str, topic: str) -> list[GroupMember]: ...

    def lag(self, group: str, topic: str) -> list[Lag]: ...

    def reset(self, group: str, topic: str, offsets: Mapping[int, int], *, dry_run: bool = False) -> Mapping[int, int]:
        """Move these partitions anywhere between start and end (`BadOffset`, `Compacted`); others stay. Returns where
        they stood. A new generation: members that run go on from there, and what they have not committed is refused.
        With `dry_run` it refuses and returns the same, and changes nothing."""

    def groups(self) -> list[Group]: ...

    def remove(self, group: str, topic: str) -> None:
        """Forget a group, so that it holds nothing back; `Pinned` while it has living members. One made under its name
        later begins at a greater generation: who belonged to the first is not taken for a member of the second."""


def assign(members: Iterable[str], partitions: int) -> dict[str, tuple[int, ...]]:
    """Contiguous ranges to members in the order of their names; the first ones have one more if it does not divide."""
    names = sorted(members)
    given, place = {}, 0
    for number, name in enumerate(names):
        size = partitions // len(names) + (number < partitions % len(names))
        given[name] = tuple(range(place, place + size))
        place += size
    return given


def beginning(extent: Extent) -> int:
    """Where a reader with nothing behind it begins: compacted records are read from 0, whatever is left of them."""
    return 0 if extent.horizon >= extent.start else extent.start


def places(log: Log, topic: str, to: Start | datetime) -> dict[int, int]:
    """Offsets for `reset`: the start or the end of the topic, or the first records appended at a time or later."""
    if isinstance(to, datetime):
        moment = to if to.tzinfo else to.replace(tzinfo=UTC)
        return dict(log.position_from(topic, int(moment.timestamp() * 1_000_000)))
    extents = log.extents(topic)
    return {p: beginning(extent) if to == "start" else extent.end for p, extent in extents.items()}


class Consumer:
    """A member of a group in the user's hand. For one thread at a time.

    Between two polls no more than `session_s` may pass, or others get its partitions: it then joins again by itself,
    and a commit of what it polled before raises `Rebalanced` or `NotAMember`.
    """

    def __init__(
        self,
        log: Log,
        groups: Groups,
        *,
        group: str,
        topic: str,
        member: str | None = None,
        session_s: float = SESSION_S,
        start: Start = "start",
        clock: Clock = system_clock,
    ) -> None:
        self._log = log
        self._groups = groups
        self.group = group
        self.topic = topic
        self.member = member or f"member-{uuid.uuid4().hex[:12]}"
        self._session_s = session_s
        self._start: Start = start
        self._clock = clock
        self._renewed = 0
        self._assignment: Assignment | None = None
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._number = AppendNumber(0)
        """An append that is wholly behind `_next`."""

    def __enter__(self) -> Consumer:
        self._join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._groups.leave(self.group, self.topic, self.member)

    @property
    def partitions(self) -> tuple[int, ...]:
        """What it reads, as of the last poll."""
        return self._assignment.partitions if self._assignment else ()

    @property
    def generation(self) -> int:
        """In which it may commit, as of the last poll; 0 before the first."""
        return self._assignment.generation if self._assignment else 0

    @property
    def next(self) -> Mapping[int, int]:
        """The next offset to read in each of its partitions: what to commit once all that was polled is done with."""
        return dict(self._next)

    def resume(self, generation: int, offsets: Mapping[int, int]) -> None:
        """Go on from `offsets`, as another object for the same member left off; if its generation is over, from what
        is committed. Never before what is committed."""
        self._stay()
        if self.generation == generation:
            self._next = {p: max(here, offsets.get(p, here)) for p, here in self._next.items()}

    def poll(self, timeout_s: float = 1.0, *, max_rows: int = 10_000) -> pa.Table | None:
        """The next records of its partitions, with metadata columns, as soon as there are any; None when time is up.

        A poll ends where an append ends: one append larger than `max_rows` comes whole. `Missed`, with the range, if
        records were removed before they were read: it is raised again until the group is reset to go on behind them.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._stay()
            newest, read = self._read(max_rows)
            if read is not None:
                return read
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._log.wait(newest, min(left, LOOK_S, self._session_s / 3))

    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """All that was polled is done with; or, with `offsets`, only what is before them."""
        wanted = dict(self._next if offsets is None else offsets)
        if self._assignment is None or all(self._committed.get(p) == offset for p, offset in wanted.items()):
            return
        generation = self._assignment.generation
        self._groups.commit(self.group, self.topic, self.member, generation=generation, offsets=wanted)
        self._committed.update(wanted)

    def _join(self) -> None:
        self._adopt(
            self._groups.join(self.group, self.topic, self.member, session_s=self._session_s, start=self._start)
        )
        self._renewed = self._clock()

    def _stay(self) -> None:
        """Still a member, and of the newest generation; a third of the session old at most."""
        now = self._clock()
        who = (self.group, self.topic, self.member)
        try:
            if now - self._renewed < self._session_s * 1_000_000 / 3:
                current = self._groups.assignment(*who)
            else:
                current = self._groups.heartbeat(*who, session_s=self._session_s)
                self._renewed = now
        except NotAMember:
            self._join()
            return
        if current != self._assignment:
            self._adopt(current)

    def _adopt(self, assignment: Assignment) -> None:
        """Partitions that it keeps also go on from what is committed: in between they may have been another's."""
        committed = self._groups.committed(self.group, self.topic)
        self._assignment = assignment
        self._committed = {partition: committed[partition] for partition in assignment.partitions}
        self._next = dict(self._committed)
        self._number = AppendNumber(0)

    def _read(self, max_rows: int) -> tuple[AppendNumber, pa.Table | None]:
        newest = self._log.snapshot([self.topic])
        ends = {p: max(here, newest.position.offset(self.topic, p)) for p, here in self._next.items()}
        number = newest.number
        if self._count(ends) > max_rows:
            number, ends = self._cut(number, max_rows)
        if ends == self._next:
            return newest.number, None
        horizons = {p: extent.horizon for p, extent in self._log.extents(self.topic).items()}
        batches: list[pa.RecordBatch] = []
        for partition, here in self._next.items():
            if ends[partition] == here:
                continue
            if here < horizons[partition]:  # net sums mean nothing in part
                ends[partition] = max(ends[partition], horizons[partition])
            batches += self._log.scan(self.topic, partition, here, ends[partition], metadata=True)
        self._next, self._number = ends, number
        tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
        return newest.number, pa.concat_tables(tables, promote_options="permissive") if tables else None

    def _cut(self, newest: AppendNumber, max_rows: int) -> tuple[AppendNumber, dict[int, int]]:
        """The last append up to which there are no more rows than that; at least the next that has any."""
        number = self._last(newest, lambda ends: self._count(ends) <= max_rows)
        if self._ends_at(number) == self._next:
            number = AppendNumber(self._last(newest, lambda ends: ends == self._next) + 1)
        return number, self._ends_at(number)

    def _last(self, high: int, holds: Callable[[dict[int, int]], bool]) -> AppendNumber:
        low: int = self._number
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if holds(self._ends_at(AppendNumber(middle))) else (low, middle - 1)
        return AppendNumber(low)

    def _ends_at(self, number: AppendNumber) -> dict[int, int]:
        ends = self._log.position_at(self.topic, number)
        return {partition: max(here, ends[partition]) for partition, here in self._next.items()}

    def _count(self, ends: Mapping[int, int]) -> int:
        return sum(ends[partition] - here for partition, here in self._next.items())
