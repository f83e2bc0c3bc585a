"""How commands become events: those that came together, in order, in one append.

    1  The aggregates are as this process knows them; from the second try on, and where it knows none, as the log has
       them now. Whether the first is still so is told by 5 or, where nothing is appended, looked up before 7.
    2  A command id that the log knows is answered with the first answer: nothing is decided.
    3  Each command is decided on the state that those before it leave. A refusal leaves it as it is.
    4  Names that an aggregate begins to hold must be free.
    5  One append: the events, the command ids, the names; on condition that aggregates are at the versions of 1, ids
       are new, and names are as they were found. It is there whole, or not at all.
    6  Somebody else was faster: nothing was appended, and all begins again at 1, so many times.
    7  Only when the append is durable is anybody answered, also who was refused: it may be for what came just before.

A crash before 5 leaves nothing, after 5 everything: who sends the command again, with its id, gets the answer of 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from headwater.clock import Clock
from headwater.decide.aggregates import EPOCH, Aggregate, Aggregates
from headwater.decide.columns import EventRows, Unfit
from headwater.decide.nearby import Nearby
from headwater.decide.reserving import Names
from headwater.decide.spec import DeciderSpec
from headwater.decide.turnstile import Turnstile
from headwater.errors import (
    BadRecord,
    CommandRefused,
    Contended,
    DecisionFailed,
    HeadwaterError,
    HistoryBroken,
    VersionConflict,
)
from headwater.log.keyhash import hash_one
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.recent import Recent

ANSWERS = 10_000
"""Answers to commands with ids that a process remembers itself."""


@dataclass(frozen=True)
class Decided:
    events: tuple[Any, ...]
    position: Position
    """Right after the events: the token to wait for in a view, and to ask for in `as_of`."""
    version: int
    """Of the aggregate, after them."""
    repeated: bool = False
    """True if a command with this id had been decided before; then all else is the first one's answer."""


@dataclass(slots=True, eq=False)
class Request:
    aggregate: str
    command: Any
    command_id: str | None = None
    expect: int | None = None
    answer: Decided | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class _Draft:
    """What is going to be appended, and answered once it is."""

    now: dict[str, Aggregate]
    """Aggregates after the commands so far."""
    before: dict[str, int]
    """The versions of those that have events or ids in it."""
    names: Names
    events: list[dict[str, Any]] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Of each event, once it is appended: its partition, and the offset after it."""
    ids: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[Request, tuple[Any, ...], int]] = field(default_factory=list)
    """In the order of their events, each with the version after."""
    first: dict[tuple[str, str], Request] = field(default_factory=dict)
    again: list[tuple[Request, Request]] = field(default_factory=list)
    """Commands with the id of another one in the same group."""
    errors: list[tuple[Request, BaseException]] = field(default_factory=list)


class Groups:
    def __init__(
        self,
        spec: DeciderSpec,
        log: Log,
        rows: EventRows,
        aggregates: Aggregates,
        nearby: Nearby,
        *,
        clock: Clock,
        turnstile: Turnstile,
    ) -> None:
        self._spec = spec
        self._log = log
        self._rows = rows
        self._aggregates = aggregates
        self._nearby = nearby
        self._clock = clock
        self._turnstile = turnstile
        self._partitions = log.topic(spec.events_topic).partitions
        self._answers: Recent[Decided] = Recent(most=ANSWERS)

    def decide(self, requests: Sequence[Request]) -> None:
        """Leaves in each request its answer or its error."""
        try:
            for number in range(self._spec.tries):
                try:
                    with self._turnstile.turn():
                        if number or not self._attempt(requests, trusting=True):
                            self._attempt(requests)
                    return
                except VersionConflict:  # 6
                    self._turnstile.crossed()
            for each in requests:
                each.error = Contended(decider=self._spec.name, aggregate=each.aggregate, tries=self._spec.tries)
        except (BadRecord, DecisionFailed, HistoryBroken) as error:  # of one of them, which is to hear it alone
            self._one_by_one(requests, error)
        except BaseException as error:  # noqa: BLE001  (each request's own thread raises it)
            for each in requests:
                each.error = error

    def _one_by_one(self, requests: Sequence[Request], error: HeadwaterError) -> None:
        if len(requests) == 1:
            requests[0].error = error
            return
        for each in requests:
            self.decide([each])

    def _attempt(self, requests: Sequence[Request], *, trusting: bool = False) -> bool:
        """False, and nothing has happened: what was trusted has changed, which an append would not have noticed."""
        ids = list(dict.fromkeys(each.aggregate for each in requests))
        now = self._aggregates.current(ids, trusting=trusting)  # 1
        draft = _Draft(now, {}, Names(self._spec, self._log))
        for each in self._unanswered(requests):  # 2, after 1: no state has the effect of an id that is not found
            try:
                self._decide(draft, each)
            except HeadwaterError as error:
                draft.errors.append((each, error))
        unchecked = [each for each in ids if each not in draft.before] if trusting else []
        if [now[each].version for each in unchecked] != self._aggregates.versions(unchecked):
            return False
        if draft.events or draft.ids:
            self._append(draft)
        self._answer(draft)
        return True

    # --- 2: commands that were decided before ---

    def _unanswered(self, requests: Sequence[Request]) -> list[Request]:
        with_id = [each for each in requests if each.command_id is not None]
        for each in with_id:
            each.answer = self._answers.get((each.aggregate, each.command_id))
        asked = [each for each in with_id if each.answer is None]
        if asked:
            keys = [(each.aggregate, each.command_id) for each in asked]
            for each, version in zip(asked, self._log.versions(self._spec.commands_topic, keys), strict=True):
                if version:
                    each.answer = self._first_answer(each)
        for each in with_id:
            if each.answer is not None:
                each.answer = replace(each.answer, repeated=True)
        return [each for each in requests if each.answer is None]

    def _first_answer(self, request: Request) -> Decided:
        assert request.command_id is not None
        key = (request.aggregate, request.command_id)
        row = next(iter(self._aggregates.read(self._spec.commands_topic, key, ("id", "command_id"))))
        version, count = row["version"], row["events"]
        found = self._aggregates.between(request.aggregate, version - count, version)
        events = tuple(each.event for each in found)
        partition = (_hash(request.aggregate) >> 32) % self._partitions
        position = self._position(partition, found[-1].offset + 1) if found else Position()
        answer = Decided(events, position, version)
        self._answers.put(key, answer)
        return answer

    # --- 3, 4: deciding ---

    def _decide(self, draft: _Draft, request: Request) -> None:
        each, spec = request.aggregate, self._spec
        if request.command_id is not None:
            first = draft.first.setdefault((each, request.command_id), request)
            if first is not request:
                draft.again.append((request, first))
                return
        before = draft.now[each]
        try:
            if request.expect is not None and request.expect != before.version:
                raise VersionConflict(
                    topic=spec.events_topic, key=repr(each), expected=request.expect, found=before.version
                )
            events = self._events(request, before.state)
            state, rows = before.state, []
            at = max(self._clock(), before.at)
            moment = EPOCH + timedelta(microseconds=at)
            for number, event in enumerate(events, start=before.version + 1):
                rows.append(self._row(request, event, number, moment))
                state = self._aggregates.evolved(each, state, event)
            if events:
                draft.names.change(each, before, state)  # 4
        except BaseException:
            if request.command_id is not None:
                del draft.first[each, request.command_id]
            raise
        after = Aggregate(state, before.version + len(rows), before.offset, at, before.snapshot) if rows else before
        if rows or request.command_id is not None:
            draft.before.setdefault(each, before.version)
        draft.now[each] = after
        draft.events += rows
        draft.answers.append((request, events, after.version))
        if request.command_id is not None:
            draft.ids.append(
                {
                    "id": each,
                    "command_id": request.command_id,
                    "type": type(request.command).__name__,
                    "version": after.version,
                    "events": len(rows),
                    "at": moment,
                }
            )

    def _events(self, request: Request, state: Any) -> tuple[Any, ...]:
        spec, command = self._spec, type(request.command).__name__
        try:
            given = spec.decide(request.command, state)
            if given is None:
                return ()
            return (given,) if type(given) in spec.events else tuple(given)
        except CommandRefused as refused:
            why = refused.why
            raise CommandRefused(why=why, decider=spec.name, aggregate=request.aggregate, command=command) from None
        except spec.refusals as error:
            why = str(error) or type(error).__name__
            refused_by = CommandRefused(why=why, decider=spec.name, aggregate=request.aggregate, command=command)
            raise refused_by from error
        except Exception as error:
            why = f"raised {type(error).__name__}: {error}"
            failed = DecisionFailed(decider=spec.name, aggregate=request.aggregate, act="decide", why=why)
            raise failed from error

    def _row(self, request: Request, event: Any, version: int, moment: datetime) -> dict[str, Any]:
        try:
            row = self._rows.row(event)
        except Unfit as error:
            name, each = self._spec.name, request.aggregate
            raise DecisionFailed(decider=name, aggregate=each, act="decide", why=str(error)) from error
        row["id"], row["version"], row["at"] = request.aggregate, version, moment
        row["command_id"] = request.command_id
        return row

    # --- 5, 7: appending, then answering ---

    def _append(self, draft: _Draft) -> None:
        spec = self._spec
        parts = self._log.stage_rows(spec.events_topic, draft.events)
        expect: dict[str, dict[tuple[Any, ...], int]] = {
            spec.events_topic: {(each,): version for each, version in draft.before.items()}
        }
        if draft.ids:
            parts += self._log.stage_rows(spec.commands_topic, draft.ids)
            expect[spec.commands_topic] = {(row["id"], row["command_id"]): 0 for row in draft.ids}
        if draft.names.rows:
            parts += self._log.stage_rows(spec.reserved_topic, draft.names.rows)
            expect[spec.reserved_topic] = draft.names.expected
        appended = self._log.append(parts, expect=expect)
        self._place(draft, appended.position)

    def _place(self, draft: _Draft, end: Position) -> None:
        """What was appended has offsets now: they are noted, and the aggregates kept with them."""
        topic, places = self._spec.events_topic, {}
        hashes: dict[int, list[int]] = {}
        for row in draft.events:
            each = row["id"]
            if each not in places:
                hashed = _hash(each)
                places[each] = hashed, (hashed >> 32) % self._partitions
            hashed, partition = places[each]
            hashes.setdefault(partition, []).append(hashed)
        following = {partition: end.offset(topic, partition) - len(some) for partition, some in hashes.items()}
        for partition, some in hashes.items():
            self._nearby.note(topic, partition, following[partition], some)
        last = {}
        for row in draft.events:
            partition = places[row["id"]][1]
            draft.ends.append((partition, following[partition] + 1))
            last[row["id"]] = following[partition]
            following[partition] += 1
        for each, offset in last.items():
            now = draft.now[each]
            self._aggregates.keep(each, Aggregate(now.state, now.version, offset, now.at, now.snapshot))
        self._aggregates.take_snapshots(list(last))

    def _answer(self, draft: _Draft) -> None:
        done = 0
        for request, events, version in draft.answers:
            done += len(events)
            position = self._position(*draft.ends[done - 1]) if events else Position()
            request.answer = Decided(events, position, version)
            if request.command_id is not None:
                self._answers.put((request.aggregate, request.command_id), request.answer)
        for request, first in draft.again:
            request.answer, request.error = first.answer, first.error
            if request.answer is not None:
                request.answer = replace(request.answer, repeated=True)
        for request, error in draft.errors:
            request.error = error

    def _position(self, partition: int, end: int) -> Position:
        return Position(((self._spec.events_topic, ((partition, end),)),))


def _hash(each: str) -> int:
    hashed = hash_one([each])
    assert hashed is not None, "ids are text"
    return hashed
