"""The aggregates of a decider as this process knows them: their states, and where these come from.

An aggregate is loaded from its newest snapshot and the events after it, found by their places: nothing scans the topic.
What is loaded stays in memory, the least used goes first. It may be behind the log at any time: who decides on it
appends on condition of its version, and who only looks asks for the version first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.decide.columns import EventRows
from headwater.decide.nearby import Nearby, Snapshot
from headwater.decide.spec import DeciderSpec
from headwater.errors import DecisionFailed, HistoryBroken
from headwater.log.keyhash import hash_one
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.recent import Recent
from headwater.records import OFFSET

NEAR = 64
"""Records that are not further apart are read in one go."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A state with the version, the place and the time (µs) of the last event in it."""

    state: Any
    version: int = 0
    offset: int = -1
    at: int = 0
    snapshot: int = 0
    """The version of its last snapshot."""


@dataclass(frozen=True)
class Recorded:
    """An event as it happened."""

    version: int
    event: Any
    at: datetime
    command_id: str | None
    offset: int


class Aggregates:
    def __init__(self, spec: DeciderSpec, log: Log, nearby: Nearby, rows: EventRows) -> None:
        self._spec = spec
        self._log = log
        self._nearby = nearby
        self._rows = rows
        self._fingerprint = spec.fingerprint
        self._known: Recent[Aggregate] = Recent(most=spec.cached)
        self._states = StateText(spec)
        self._broken_ids: set[str] = set()
        """Those of which a second look has found the same."""

    # --- states ---

    def current(self, ids: Sequence[str], *, trusting: bool = False) -> dict[str, Aggregate]:
        """Each as the log has it now, or later; or, `trusting`, as this process last knew it, if it did."""
        found = {each: known for each in ids if trusting and (known := self._known.get(each)) is not None}
        ids = [each for each in ids if each not in found]
        for each, version in zip(ids, self.versions(ids), strict=True):
            known = self._known.get(each)
            if version == 0:
                known = Aggregate(self._spec.beginning())
            elif known is None or known.version < version:
                known = self._loaded(each, known, version)
            elif known.version > version:  # forgotten meanwhile, by somebody who may
                known = self._loaded(each, None, version)
            found[each] = known
        return found

    def versions(self, ids: Sequence[str]) -> list[int]:
        """As the log has them now."""
        return self._log.versions(self._spec.events_topic, [(each,) for each in ids]) if ids else []

    def keep(self, each: str, now: Aggregate) -> Aggregate:
        self._known.put(each, now)
        return now

    def drop(self, ids: Sequence[str]) -> None:
        for each in ids:
            self._known.forget(each)

    def evolved(self, each: str, state: Any, event: Any) -> Any:
        try:
            return self._spec.evolve(state, event)
        except Exception as error:
            why = f"raised {type(error).__name__}: {error}"
            raise DecisionFailed(decider=self._spec.name, aggregate=each, act="evolve", why=why) from error

    def _loaded(self, each: str, known: Aggregate | None, least: int) -> Aggregate:
        """From what is known, or a snapshot, or the beginning; it must come to version `least`."""
        for attempt in (1, 2):
            try:
                start = known or self._from_snapshot(each, most=least) or Aggregate(self._spec.beginning())
                now = self._replayed(each, start)
                if now.version < least:
                    raise self._broken(each, f"{now.version} events were found, the log counts {least}")
                return self.keep(each, now)
            except HistoryBroken:
                if attempt == 2 or each in self._broken_ids:
                    self._broken_ids.add(each)
                    raise
                known = None
                self._nearby.begin_anew()  # it was of another log, or damaged: all is derived again
        raise AssertionError("unreachable")

    def _replayed(self, each: str, start: Aggregate) -> Aggregate:
        state, version, offset, at = start.state, start.version, start.offset, start.at
        for recorded in self.recorded(each, after=start.offset):
            if recorded.version != version + 1:
                raise self._broken(each, f"event {recorded.version} follows event {version}")
            state = self.evolved(each, state, recorded.event)
            version, offset, at = recorded.version, recorded.offset, micros(recorded.at)
        return Aggregate(state, version, offset, at, start.snapshot)

    def _broken(self, each: str, why: str) -> HistoryBroken:
        do = f"Append to {self._spec.events_topic!r} by commands only; 'headwater verify' looks for damage"
        return HistoryBroken(decider=self._spec.name, aggregate=each, why=why, do=do)

    # --- events ---

    def recorded(self, each: str, *, after: int = -1) -> Iterator[Recorded]:
        """The aggregate's events at offsets above `after`, in their order."""
        for row in self.read(self._spec.events_topic, (each,), ("id",), after=after):
            yield self._recorded(row)

    def _recorded(self, row: dict[str, Any]) -> Recorded:
        return Recorded(row["version"], self._rows.event(row), row["at"], row["command_id"], row[OFFSET])

    def between(self, each: str, after: int, last: int) -> list[Recorded]:
        """The aggregate's events of versions above `after` up to `last`: as a rule, these are their places too."""
        own = self._places(self._spec.events_topic, (each,))
        for places in (own[after:last], own):
            rows = self._rows_at(self._spec.events_topic, (each,), ("id",), places)
            found = [row for row in rows if after < row["version"] <= last]
            if len(found) == last - after:
                return [self._recorded(row) for row in found]
        raise self._broken(each, f"its events {after + 1} to {last} are not all there")

    def read(
        self, topic: str, key: Sequence[str], columns: Sequence[str], *, after: int = -1
    ) -> Iterator[dict[str, Any]]:
        """The records of one key, by their places."""
        return self._rows_at(topic, key, columns, self._places(topic, key, after=after))

    def _places(self, topic: str, key: Sequence[str], *, after: int = -1) -> list[int]:
        hashed, partition = self._place(topic, key)
        return self._nearby.places(topic, partition, hashed, after=after)

    def _place(self, topic: str, key: Sequence[str]) -> tuple[int, int]:
        hashed = hash_one(key)
        assert hashed is not None, "keys here are text"
        return hashed, (hashed >> 32) % self._log.topic(topic).partitions

    def _rows_at(
        self, topic: str, key: Sequence[str], columns: Sequence[str], places: Sequence[int]
    ) -> Iterator[dict[str, Any]]:
        _, partition = self._place(topic, key)
        for near in _near(places):
            for batch in self._log.scan(topic, partition, near[0], near[-1] + 1, metadata=True):
                for row in batch.to_pylist():
                    if all(row[name] == value for name, value in zip(columns, key, strict=True)):
                        yield row

    def history(self, each: str) -> list[Recorded]:
        """All events of the aggregate, none missing; places that lead to fewer are derived again."""
        (least,) = self._log.versions(self._spec.events_topic, [(each,)])
        for attempt in (1, 2):
            found = list(self.recorded(each))
            if [recorded.version for recorded in found] == list(range(1, max(least, len(found)) + 1)):
                return found
            if attempt == 1:
                self._nearby.begin_anew()
        raise self._broken(each, f"its events are not 1 to {least}")

    def state_at(self, each: str, wanted: Callable[[Recorded], bool]) -> Any:
        """After the events up to the first that is not wanted, replayed from the beginning."""
        state = self._spec.beginning()
        for recorded in itertools.takewhile(wanted, self.history(each)):
            state = self.evolved(each, state, recorded.event)
        return state

    # --- snapshots ---

    def _from_snapshot(self, each: str, *, most: int) -> Aggregate | None:
        found = self._nearby.snapshot(each)
        if found is None or not self.usable(found) or found.version > most:
            return None
        state = self._states.read(found.state)
        return None if state is None else Aggregate(state[0], found.version, found.offset, found.at, found.version)

    def take_snapshots(self, ids: Sequence[str]) -> None:
        """Of those that have come far enough since their last one."""
        every, due = self._spec.snapshot_every, []
        for each in ids if every is not None else ():
            now = self._known.get(each)
            assert every is not None
            if now is None or now.version - now.snapshot < every:
                continue
            text = self._states.written(now.state)
            if text is not None:
                due.append(Snapshot(each, now.version, now.offset, now.at, self._fingerprint, text))
            self.keep(each, Aggregate(now.state, now.version, now.offset, now.at, now.version))
        if due:
            self._nearby.put(due)

    def usable(self, found: Snapshot) -> bool:
        """Whether this code would begin with it."""
        return found.code == self._fingerprint and found.whole

    def unlike(self, found: Snapshot, replayed: Any) -> str | None:
        """How a snapshot differs from the state that a full replay gives; None if it does not."""
        state = self._states.read(found.state)
        if state is not None and state[0] == replayed:
            return None
        told = f"says {state[0]!r}" if state is not None else "cannot be read"
        return f"{found.id!r}: the snapshot of version {found.version} {told}, the events say {replayed!r}"


class StateText:
    """States as JSON, by their class. One that would not be read again as it is has no snapshots."""

    def __init__(self, spec: DeciderSpec) -> None:
        self._kind = type(spec.beginning())
        self._adapter: Any = None

    def _of_kind(self) -> Any:
        if self._adapter is None:
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(self._kind)
        return self._adapter

    def written(self, state: Any) -> str | None:
        try:
            text: str = self._of_kind().dump_json(state).decode()
        except Exception:  # noqa: BLE001  (a class that pydantic cannot write)
            return None
        again = self.read(text)
        return text if again is not None and again[0] == state else None

    def read(self, text: str) -> tuple[Any] | None:
        try:
            return (self._of_kind().validate_json(text),)
        except Exception:  # noqa: BLE001  (the class has changed, or pydantic cannot read it)
            return None


def wanted_until(as_of: int | datetime | Position, topic: str, partition: int) -> Callable[[Recorded], bool]:
    """Whether an event belongs to the past that is asked for."""
    if isinstance(as_of, Position):
        end = as_of.offset(topic, partition)
        return lambda recorded: recorded.offset < end
    if isinstance(as_of, datetime):
        moment = as_of if as_of.tzinfo is not None else as_of.replace(tzinfo=UTC)
        return lambda recorded: recorded.at <= moment
    return lambda recorded: recorded.version <= as_of


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _near(offsets: Sequence[int]) -> Iterator[list[int]]:
    some: list[int] = []
    for offset in offsets:
        if some and offset - some[-1] > NEAR:
            yield some
            some = []
        some.append(offset)
    if some:
        yield some
