"""Is what is kept for speed what the events say? Answered by a full replay, which knows none of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.decide.aggregates import Aggregates
from headwater.decide.columns import EventRows
from headwater.decide.nearby import Nearby
from headwater.decide.reserving import Name, names_of
from headwater.decide.spec import DeciderSpec
from headwater.errors import HeadwaterError
from headwater.log.protocol import Log
from headwater.records import DELETED


@dataclass(frozen=True)
class Checked:
    decider: str
    aggregates: int
    events: int
    snapshots: int
    """Those that this code would use."""
    findings: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.findings


def check(spec: DeciderSpec, log: Log, nearby: Nearby, aggregates: Aggregates, rows: EventRows) -> Checked:
    """Reads the whole topic, a partition at a time; states of its aggregates are in memory meanwhile."""
    events, count, found = 0, 0, []
    names: dict[Name, list[str]] = {}
    wanted = {each.id: each for each in nearby.snapshots() if aggregates.usable(each)}
    at_snapshot: dict[str, Any] = {}
    for partition in range(log.topic(spec.events_topic).partitions):
        states: dict[str, tuple[Any, int]] = {}
        for row in _rows_of(log, spec.events_topic, partition):
            events += 1
            each = row["id"]
            state, version = states.get(each) or (spec.beginning(), 0)
            if row["version"] != version + 1:
                found.append(f"{each!r}: event {row['version']} follows event {version}")
            try:
                state = aggregates.evolved(each, state, rows.event(row))
            except HeadwaterError as error:
                found.append(str(error))
            states[each] = state, version + 1
            if each in wanted and wanted[each].version == version + 1:
                at_snapshot[each] = state
        count += len(states)
        counted = log.versions(spec.events_topic, [(each,) for each in states])
        for (each, (state, version)), said in zip(states.items(), counted, strict=True):
            if said < version:
                found.append(f"{each!r}: has {version} events, the log counts {said}")
            for name in names_of(spec, each, state, version):
                names.setdefault(name, []).append(each)
    found += [finding for each in wanted.values() if (finding := aggregates.unlike(each, at_snapshot.get(each.id)))]
    if spec.unique is not None:
        found += _check_names(log, spec, names)
    return Checked(spec.name, count, events, len(wanted), tuple(found))


def _check_names(log: Log, spec: DeciderSpec, names: dict[Name, list[str]]) -> Iterator[str]:
    held: dict[Name, str] = {}
    for row in _rows_of(log, spec.reserved_topic, 0):
        name = row["scope"], row["value"]
        if row[DELETED]:
            held.pop(name, None)
        else:
            held[name] = row["holder"]
    for name, holders in names.items():
        if len(holders) > 1:
            yield f"{name[0]} {name[1]!r} is held by {len(holders)}: {', '.join(map(repr, sorted(holders)[:5]))}"
        elif held.get(name) != holders[0]:
            yield f"{name[0]} {name[1]!r} of {holders[0]!r} is reserved for {held.get(name)!r}"
    for name in held.keys() - names.keys():
        yield f"{name[0]} {name[1]!r} is reserved for {held[name]!r}, which does not hold it"


def _rows_of(log: Log, topic: str, partition: int) -> Iterator[dict[str, Any]]:
    extent = log.extents(topic)[partition]
    for batch in log.scan(topic, partition, extent.start, extent.end):
        yield from batch.to_pylist()
