"""Lengths of time as users write them: `10 minutes`, `1 hour 30 minutes`, a timedelta; Spark's words, checked by us.

Spark reads such text itself, but tells of a wrong one late and in its own words, without the argument's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta

from headwater.errors import BadFrame, UsageError
from headwater.log.spec import TopicSpec

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(rf"\s*(\d+)\s*({'|'.join(_UNITS)})s?\b", re.IGNORECASE)


Duration = str | timedelta


def micros(text: Duration, *, what: str, zero: bool = False) -> int:
    """How many microseconds the text stands for, or `BadFrame` saying what it was given as (`lateness`, `gap`)."""
    if isinstance(text, timedelta):
        text = f"{text // timedelta(microseconds=1)} microseconds"
    found, place = 0, 0
    while isinstance(text, str) and (part := _PART.match(text, place)):
        found += int(part[1]) * _UNITS[part[2].lower()]
        place = part.end()
    if not isinstance(text, str) or not place or text[place:].strip() or not (found or zero):
        raise BadFrame(
            what=f"{what}={text!r} is not a length of time" + ("" if zero else " above zero"),
            do=f"Write a number and a unit, such as '10 minutes' or '1 hour 30 minutes'; units: {', '.join(_UNITS)} "
            "(months and years have no fixed length)",
        )
    return found


def spark_text(length: int) -> str:
    """The length in the words that Spark's functions take."""
    return f"{length} microseconds"


def lateness(
    streams: tuple[str, ...],
    given: Duration | Mapping[str, Duration] | None,
    *,
    of: str,
    known: Callable[[str], TopicSpec | None],
) -> tuple[tuple[str, int], ...]:
    """How late records of each stream may be, in µs: one for all, or by topic; only what has an event time can be."""
    if given is None:
        return ()
    by_topic = dict(given) if isinstance(given, Mapping) else dict.fromkeys(streams, given)
    found = []
    for topic, duration in by_topic.items():
        spec = known(topic)
        if topic not in streams or spec is None or spec.time is None:
            raise UsageError(
                what=f"{of!r} has a lateness for {topic!r}, which is no input with an event time",
                do="Declare that topic with time='...'",
            )
        found.append((topic, micros(duration, what="lateness", zero=True)))
    return tuple(found)
