"""What must hold of every history of a log. Each checker is a pure function from a history to what it found.

They hold for histories in which nothing is removed: retention, compaction and excision are not among the operations.
An operation of unknown outcome (`info`) may have happened or not; no finding rests on it having done either.

    L1   lost write           acknowledged, a later one was polled, and nobody ever saw it
    L2   unseen               acknowledged, and not in the final drain
    L3   duplicate            one value at two offsets
    L4   inconsistent offset  one offset with two values, over all readers and restarts
    L5   aborted read         a value was seen though every append of it was refused
    L6   precommitted read    a value was seen before, or without, its append being asked for; by its own writer too
    L7   torn append          a poll has one record of an append, and not those in the other partitions that it polled
    L8   skipping polls       in a poll, or between two of a process, offsets that exist are left out, or come again
    L9   unordered sends      appends of one process, or records of one append, are out of order; appends have another
                              order in another partition (Jepsen's G0: normal in Kafka, but ours have one order)
    L10  offsets              a hole; an end that goes back, for anybody, also across restarts
    L12  fencing              an append of an older epoch is acknowledged after a newer one was granted
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from headwater.testing.history.events import History, Operation, Partition, Range, Record


@dataclass(frozen=True)
class Finding:
    invariant: str
    name: str
    what: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = (("topic", self.topic), ("partition", self.partition), ("offset", self.offset))
        where = ", ".join(f"{name} {value}" for name, value in parts if value is not None)
        return f"{self.invariant} {self.name}{': ' + where if where else ''}: {self.what}"


def check(history: History) -> list[Finding]:
    """All that all of them find."""
    return [finding for checker in CHECKERS.values() for finding in checker(history)]


def lost_writes(history: History) -> list[Finding]:
    polled = _offsets(history.polled)
    return [
        _at("L1", "lost write", record, f"{record.value!r} was acknowledged to {append.process}, and nobody saw it")
        for append in history.acknowledged
        for record in append.records
        if record.offset not in polled[record.place] and max(polled[record.place], default=-1) > _offset(record)
    ]


def unseen(history: History) -> list[Finding]:
    drains = [poll for poll in history.polls if poll.asked.final]
    if not drains:
        return [Finding("L2", "unseen", "there is no final drain: nothing can be said")]
    drained = {(record.topic, record.value) for poll in drains for record in poll.records}
    return [
        _at("L2", "unseen", record, f"{record.value!r} was acknowledged to {append.process}, and is not in the end")
        for append in history.acknowledged
        for record in append.records
        if (record.topic, record.value) not in drained
    ]


def duplicates(history: History) -> list[Finding]:
    places: dict[str, dict[tuple[str, int, int], Record]] = defaultdict(dict)
    for record in history.placed:
        places[record.value].setdefault((*record.place, _offset(record)), record)
    return [
        _at("L3", "duplicate", next(iter(own.values())), f"{value!r} is at {sorted(own)}")
        for value, own in places.items()
        if len(own) > 1
    ]


def inconsistent_offsets(history: History) -> list[Finding]:
    values: dict[tuple[str, int, int], dict[str, Record]] = defaultdict(dict)
    for record in history.placed:
        values[(*record.place, _offset(record))].setdefault(record.value, record)
    return [
        _at("L4", "inconsistent offset", next(iter(own.values())), f"it was said to hold {sorted(own)}")
        for own in values.values()
        if len(own) > 1
    ]


def aborted_reads(history: History) -> list[Finding]:
    refused = {
        value: tries[-1]
        for value, tries in history.attempts.items()
        if all(append.outcome == "fail" for append in tries)
    }
    return [
        _at("L5", "aborted read", record, f"{record.value!r} was seen, and {refused[record.value]} was refused")
        for record in _once(history.polled)
        if record.value in refused
    ]


def precommitted_reads(history: History) -> list[Finding]:
    found = []
    for poll in history.polls:
        assert poll.told is not None
        for record in poll.records:
            tries = history.attempts.get(record.value)
            if tries is None:
                what = f"{record.value!r} was seen by {poll.process}, and nobody has asked to append it"
                found.append(_at("L6", "precommitted read", record, what))
            elif poll.told.time < min(append.asked.time for append in tries):
                what = f"{record.value!r} was seen by {poll.process} before {tries[0]} asked to append it"
                found.append(_at("L6", "precommitted read", record, what))
    return found


def torn_appends(history: History) -> list[Finding]:
    found = []
    for poll in history.polls:
        assert poll.told is not None
        seen = {record.value for record in poll.records}
        places = {polled.place for polled in poll.told.ranges}
        appends = {id(tries[0]): tries[0] for value in seen if (tries := history.attempts.get(value))}
        for append in appends.values():
            for record in append.asked.records:
                if record.place in places and record.value not in seen:
                    what = f"{poll.process} saw a part of {append}, and not {record.value!r}"
                    found.append(_at("L7", "torn append", record, what))
    return found


def skipping_polls(history: History) -> list[Finding]:
    known = {place: sorted(own) for place, own in _offsets(history.placed).items()}
    ended: dict[tuple[str, Partition], int] = {}
    found = []
    for poll in history.polls:
        assert poll.told is not None
        offsets = defaultdict(list)
        for record in poll.records:
            offsets[record.place].append(_offset(record))
        for polled in poll.told.ranges:
            last = ended.get((poll.process, polled.place))
            if last is not None and polled.start < last:
                what = f"{poll.process} polled from {polled.start}, and had been at {last}"
                found.append(_in("L8", "nonmonotonic poll", polled, polled.start, what))
            elif last is not None and (left_out := _between(known, polled.place, last, polled.start)) is not None:
                what = f"{poll.process} polled up to {last} and then from {polled.start}"
                found.append(_in("L8", "poll skip", polled, left_out, what))
            ended[poll.process, polled.place] = polled.end
            for before, after in pairwise([polled.start - 1, *offsets[polled.place], polled.end]):
                if after <= before and after != polled.end:
                    what = f"a poll of {poll.process} has it after {before}"
                    found.append(_in("L8", "internal nonmonotonic poll", polled, after, what))
                elif (left_out := _between(known, polled.place, before + 1, after)) is not None:
                    what = f"a poll of {poll.process} has {before} and then {after}"
                    found.append(_in("L8", "internal poll skip", polled, left_out, what))
    return found


def unordered_sends(history: History) -> list[Finding]:
    last: dict[tuple[str, Partition], Record] = {}
    found = []
    for append in history.acknowledged:
        assert append.told is not None
        if append.told.repeated:
            continue  # its offsets are those of the first time
        before = dict(last)
        within: dict[Partition, Record] = {}
        for record in append.records:
            earlier = before.get((append.process, record.place))
            if earlier is not None and _offset(record) <= _offset(earlier):
                what = f"{append} got it, and before that {append.process} had got {earlier.offset}"
                found.append(_at("L9", "nonmonotonic send", record, what))
            neighbour = within.get(record.place)
            if neighbour is not None and _offset(record) <= _offset(neighbour):
                what = f"inside of {append} it comes after {neighbour.offset}"
                found.append(_at("L9", "internal nonmonotonic send", record, what))
            within[record.place] = last[append.process, record.place] = record
    return [*found, *_write_cycles(history)]


def _write_cycles(history: History) -> list[Finding]:
    """Appends that stand before each other: what remains when those that stand before all others are taken away."""
    after: dict[int, set[int]] = defaultdict(set)
    waits: Counter[int] = Counter()
    appends: dict[int, Operation] = {}
    for own in _by_partition(history.placed).values():
        order = []
        for _, record in sorted(own.items()):
            if tries := history.attempts.get(record.value):
                appends[id(tries[0])] = tries[0]
                order.append(id(tries[0]))
        for one, other in pairwise(order):
            if one != other and other not in after[one]:
                after[one].add(other)
                waits[other] += 1
    free = [append for append in appends if not waits[append]]
    while free:
        for other in after[free.pop()]:
            waits[other] -= 1
            if not waits[other]:
                free.append(other)
    cycle = sorted(str(appends[append]) for append, count in waits.items() if count)
    return [Finding("L9", "write cycle", f"each stands before another of them: {cycle[:4]}")] if cycle else []


def offsets_in_order(history: History) -> list[Finding]:
    return [*_holes(history), *_going_back(history)]


def _holes(history: History) -> list[Finding]:
    found = []
    for poll in history.polls:
        assert poll.told is not None
        there = _offsets(poll.records)
        for polled in poll.told.ranges:
            hole = next((each for each in range(polled.start, polled.end) if each not in there[polled.place]), None)
            if hole is not None:
                found.append(_in("L10", "hole", polled, hole, f"{poll.process} polled past it, and nothing was there"))
    return found


def _going_back(history: History) -> list[Finding]:
    """In the order of time: whoever asks after somebody was told an end must not be told an earlier one."""
    moments = [(operation.asked.time, 1, operation) for operation in history.operations]
    moments += [(operation.told.time, 0, operation) for operation in history.operations if operation.told is not None]
    ends: dict[Partition, int] = {}
    when_asked: dict[int, dict[Partition, int]] = {}
    found = []
    for _, is_asking, operation in sorted(moments, key=lambda moment: moment[:2]):
        if is_asking:
            when_asked[id(operation)] = dict(ends)
            continue
        known = when_asked.pop(id(operation))
        assert operation.told is not None
        if not operation.ok or operation.told.repeated:
            continue
        for polled in operation.told.ranges:
            if polled.end < known.get(polled.place, 0):
                what = f"{operation} was told this end, and {known[polled.place]} had been told before"
                found.append(_in("L10", "end goes back", polled, polled.end, what))
            ends[polled.place] = max(ends.get(polled.place, 0), polled.end)
        for record in operation.records if operation.op == "append" else ():
            if _offset(record) < known.get(record.place, 0):
                what = f"{operation} got it, and the end {known[record.place]} had been told before"
                found.append(_at("L10", "offset goes back", record, what))
            ends[record.place] = max(ends.get(record.place, 0), _offset(record) + 1)
    return found


def fencing(history: History) -> list[Finding]:
    granted: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found = []
    for operation in history.operations:
        if operation.op == "begin" and operation.ok:
            assert operation.told is not None
            assert operation.told.epoch is not None
            producer = str(operation.asked.producer)
            if operation.told.epoch in {epoch for _, epoch in granted[producer]}:
                found.append(Finding("L12", "epoch twice", f"{producer!r} was granted {operation.told.epoch} again"))
            granted[producer].append((operation.told.time, operation.told.epoch))
    for append in history.acknowledged:
        own = append.asked.epoch
        newer = [
            epoch
            for time, epoch in granted[str(append.asked.producer)]
            if own is not None and time < append.asked.time and epoch > own
        ]
        if newer:
            what = f"{append} at epoch {own} was acknowledged after epoch {max(newer)} was granted"
            found.append(Finding("L12", "fencing", what))
    return found


CHECKERS: dict[str, Callable[[History], list[Finding]]] = {
    "L1": lost_writes,
    "L2": unseen,
    "L3": duplicates,
    "L4": inconsistent_offsets,
    "L5": aborted_reads,
    "L6": precommitted_reads,
    "L7": torn_appends,
    "L8": skipping_polls,
    "L9": unordered_sends,
    "L10": offsets_in_order,
    "L12": fencing,
}


def _offset(record: Record) -> int:
    assert record.offset is not None, f"{record.value!r} was acknowledged or polled without an offset"
    return record.offset


def _offsets(records: Iterable[Record]) -> defaultdict[Partition, set[int]]:
    found: defaultdict[Partition, set[int]] = defaultdict(set)
    for record in records:
        found[record.place].add(_offset(record))
    return found


def _by_partition(records: Iterable[Record]) -> dict[Partition, dict[int, Record]]:
    found: dict[Partition, dict[int, Record]] = defaultdict(dict)
    for record in records:
        found[record.place].setdefault(_offset(record), record)
    return found


def _once(records: Iterable[Record]) -> Iterable[Record]:
    return {record.value: record for record in records}.values()


def _between(known: dict[Partition, list[int]], place: Partition, start: int, end: int) -> int | None:
    """The first known offset with start <= o < end."""
    own = known.get(place, [])
    index = bisect_left(own, start)
    return own[index] if index < len(own) and own[index] < end else None


def _at(invariant: str, name: str, record: Record, what: str) -> Finding:
    return Finding(invariant, name, what, record.topic, record.partition, record.offset)


def _in(invariant: str, name: str, polled: Range, offset: int, what: str) -> Finding:
    return Finding(invariant, name, what, polled.topic, polled.partition, offset)
