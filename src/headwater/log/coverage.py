"""What a derived topic covers of all that it was made from, also through other derived topics.

V2 on V1 on T covers T as far as the last append of V1 that ends at or before V2's offset in V1. Appends without records
count: V1 may have read much of T that changed nothing in it, and then V2 covers that too.
Where several ways lead to T, the shortest reach counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import TopicNotFound
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log


@dataclass(frozen=True)
class Made:
    """A derived topic, and who makes it of what: one version of a view or stream."""

    name: str
    """As the user calls it."""
    version: int
    topic: str
    producer: str
    inputs: tuple[str, ...]
    """The topics that it reads."""


MadeBy = Callable[[str], Made | None]
"""Who makes a topic; None if it is not derived."""
_Ends = dict[str, dict[int, int]]
"""As in a position, but a topic that is read and stands at 0 is named."""


def covered_by(log: Log, made_by: MadeBy, made: Made, *, at: AppendNumber | None = None) -> Position:
    """How far a derived topic reflects all that it was made from: now, or right after an append."""
    return Position.of(_of(log, made_by, made, at))


def reach(log: Log, made_by: MadeBy, inputs: Iterable[str], end: Position) -> Position:
    """What one covers in all who has read these topics up to `end`."""
    return Position.of(_reach(log, made_by, inputs, end))


def all_inputs(made_by: MadeBy, inputs: Iterable[str]) -> tuple[str, ...]:
    """These topics, and whatever those that are derived were made from, nearest first."""
    found = dict.fromkeys(inputs)
    todo = list(found)
    while todo:
        made = made_by(todo.pop(0))
        for topic in made.inputs if made is not None else ():
            if topic not in found:
                found[topic] = None
                todo.append(topic)
    return tuple(found)


def _of(log: Log, made_by: MadeBy, made: Made, at: AppendNumber | None) -> _Ends:
    covered = log.covered(made.producer, at=at)
    end = covered.progress.end if covered is not None else Position()
    return _reach(log, made_by, made.inputs or end.topics, end)


def _reach(log: Log, made_by: MadeBy, inputs: Iterable[str], end: Position) -> _Ends:
    own = end.as_dict()
    found: _Ends = {}
    for topic in inputs:
        _narrow(found, {topic: own.get(topic, {})})
        made = made_by(topic)
        if made is not None:
            _narrow(found, _below(log, made_by, made, end))
    return found


def _below(log: Log, made_by: MadeBy, made: Made, end: Position) -> _Ends:
    """What one covers who has read a derived topic up to there."""
    try:
        newest = log.snapshot([made.topic]).number  # asked first: what comes after it is not claimed
        beyond = log.append_after(made.topic, end)
    except TopicNotFound:  # declared, and not made yet
        return {topic: {} for topic in made.inputs}
    return _of(log, made_by, made, newest if beyond is None else AppendNumber(beyond - 1))


def _narrow(found: _Ends, other: Mapping[str, Mapping[int, int]]) -> None:
    for topic, ends in other.items():
        known = found.get(topic)
        found[topic] = dict(ends) if known is None else {p: min(o, ends.get(p, 0)) for p, o in known.items()}
