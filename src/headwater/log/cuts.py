"""Cuts: append numbers at which pipelines end a batch, so that several views can be read as of one and the same moment.

    1  Who wants to read views together appends a record to `_headwater.cuts`: which producers it concerns (those of the
       views, and of all that they are made from), and until when it waits. The number of that append is the cut.
    2  A pipeline that plans a batch looks for the log's end first and for cuts then, so that it cannot overlook one
       before that end. It ends the batch at the first cut that it has not come to.
    3  Whoever reads a derived topic ends its batch where that topic's pipeline has come to the cut.
    4  All of them have then, at some append of theirs, covered exactly what stood in the log at the cut. What their
       topics said at these appends are the views at the cut, however far they have gone on since.

A pipeline may pass a cut by: one that was parked across it reads what it was planned to read. Then the one who waits
asks for another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.clock import Clock, system_clock
from headwater.errors import TopicNotFound
from headwater.log.coverage import Made, MadeBy
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log
from headwater.log.spec import INTERNAL, Settings, TopicSpec
from headwater.log.topic import Topic
from headwater.records import APPENDED_AT, OFFSET, schema_of

CUTS = TopicSpec(
    f"{INTERNAL}cuts",
    schema_of({"producers": "list<string>", "until": "timestamp"}),
    partitions=1,
    settings=Settings(most_rows=64),
)
SPACING_S = 0.25
"""Who asks so soon after somebody else's cut waits a little, and shares the next one: each costs a batch."""
SPACING = timedelta(seconds=SPACING_S)
WAKE_S = 0.02


@dataclass(frozen=True)
class Cut:
    number: AppendNumber
    producers: frozenset[str]
    """Whom it concerns."""
    at: datetime
    """When it was asked for, and until when somebody waits for it."""
    until: datetime


def ask(log: Log, producers: Iterable[str], *, timeout_s: float, clock: Clock = system_clock) -> Cut:
    """A cut that comes after all that was appended before the call; somebody else's, if it concerns the same ones."""
    wanted = frozenset(producers)
    topic = Topic(log, log.create(CUTS))
    called = log.snapshot([]).number
    patience = time.monotonic() + SPACING_S
    while True:
        now = datetime.fromtimestamp(clock() / 1_000_000, UTC)
        asked = recent(log)
        shared = [cut for cut in asked if cut.number > called and cut.producers >= wanted and cut.until > now]
        if shared:
            return shared[0]
        if not asked or now - asked[-1].at >= SPACING or time.monotonic() >= patience:
            until = now + timedelta(seconds=timeout_s)
            appended = topic.append_parts([{"producers": sorted(wanted), "until": until}])
            return Cut(appended.number, wanted, now, until)
        time.sleep(WAKE_S)


def recent(log: Log) -> list[Cut]:
    """The last cuts, the oldest first, also those that nobody waits for any more."""
    try:
        records = Topic(log, log.topic(CUTS.name)).read().to_pylist()
    except TopicNotFound:
        return []
    found = []
    for record in records:
        number = log.append_after(CUTS.name, Position.of({CUTS.name: {0: record[OFFSET]}}))
        if number is not None:
            found.append(Cut(number, frozenset(record["producers"]), record[APPENDED_AT], record["until"]))
    return found


@dataclass(frozen=True)
class Standing:
    """How a pipeline stands to a cut."""

    target: Position
    """Where its inputs are at the cut; of derived ones, as far as these have come to it."""
    settled: bool
    """Whether they have, so that the target is final."""
    number: AppendNumber | None = None
    """Its append that covers exactly that; 0: nothing was there to be covered."""
    passed: bool = False
    """It, or something that it reads, has gone past the cut without ending a batch there."""


def standing(log: Log, made_by: MadeBy, made: Made, cut: AppendNumber) -> Standing:
    covered = log.covered(made.producer)  # asked first: the target moves on, but only until it is settled
    end = covered.progress.end if covered is not None else Position()
    below = {topic: maker for topic in made.inputs if (maker := made_by(topic)) is not None}
    stands = [standing(log, made_by, maker, cut) for maker in below.values()]
    target = _target(log, made_by, made, cut)
    settled = all(each.number is not None for each in stands)
    if any(each.passed for each in stands):
        return Standing(target, settled, passed=True)
    if target.covers(end):
        number = covered.number if covered is not None else AppendNumber(0)
        return Standing(target, settled, number if settled and end == target else None)
    last = _last_within(log, made, target)
    reached = log.covered(made.producer, at=last)
    exact = (reached.progress.end if reached is not None else Position()) == target
    return Standing(target, settled, last if exact else None, passed=not exact)


def _target(log: Log, made_by: MadeBy, made: Made, cut: AppendNumber) -> Position:
    ends = {}
    for topic in made.inputs:
        maker = made_by(topic)
        number = cut if maker is None else _last_within(log, maker, _target(log, made_by, maker, cut))
        ends[topic] = log.position_at(topic, number)
    return Position.of(ends)


def _last_within(log: Log, made: Made, target: Position) -> AppendNumber:
    """The last append of a pipeline that covers no more than the target; 0 if it has none."""
    low, found = 0, log.covered(made.producer)
    if found is None:
        return AppendNumber(0)
    if target.covers(found.progress.end):
        return found.number
    high = found.number - 1
    while low < high:
        middle = (low + high + 1) // 2
        found = log.covered(made.producer, at=AppendNumber(middle))
        low, high = (middle, high) if found is None or target.covers(found.progress.end) else (low, middle - 1)
    found = log.covered(made.producer, at=AppendNumber(low))
    return found.number if found is not None else AppendNumber(0)
