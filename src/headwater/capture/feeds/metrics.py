"""A line of StatsD, with DogStatsD's additions, becomes metrics.

    <name>:<value>[:<value>...]|<kind>[|@<rate>][|#<tag>,<tag>:<value>...][|T<unix seconds>]

Kinds are c (counter), g (gauge), ms (timer), h (histogram), d (distribution), s (set). A gauge with a sign is a change
of it, as StatsD has it: `gauge_delta`. The member of a set is text, its value is null. Several values are several
metrics. A tag without a value has the empty one; values of a tag that stands twice are joined by a comma. Values are
as they were sent: a counter with the rate 0.1 stands for ten times as much. Fields that name a container are not kept.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from headwater.records import schema_of

COLUMNS = schema_of(
    {
        "name": "string",
        "kind": "string",
        "value": "float64",
        "member": "string",
        "rate": "float64",
        "tags": "map<string, string>",
        "at": "timestamp",
    }
)
KINDS = {"c": "counter", "g": "gauge", "ms": "timer", "h": "histogram", "d": "distribution", "s": "set"}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LATEST_S = 253_402_300_800
"""Where Python's calendar ends."""


class BadMetric(ValueError):
    """A line that is none; says why."""


class Metric(NamedTuple):
    """In the order of the columns."""

    name: str
    kind: str
    value: float | None
    member: str | None
    rate: float
    tags: list[tuple[str, str]]
    at_us: int


def metrics_in(line: str, *, now_us: int) -> list[Metric]:
    """At least one, or `BadMetric`."""
    told, *fields = line.split("|")
    name, colon, values = told.partition(":")
    if not name or not colon:
        raise BadMetric("a metric is NAME:VALUE|KIND")
    if not fields or fields[0] not in KINDS:
        raise BadMetric(f"the kind is none of {', '.join(KINDS)}")
    kind = KINDS[fields[0]]
    rate, tags, at_us = 1.0, [], now_us
    for field in fields[1:]:
        if field.startswith("@"):
            rate = _rate(field[1:])
        elif field.startswith("#"):
            tags = _tags(field[1:])
        elif field.startswith("T"):
            at_us = _moment(field[1:])
        elif not field.startswith(("c:", "e:", "card:")):
            raise BadMetric(f"the field {field!r} is not known")
    if kind == "set":
        return [Metric(name, kind, None, values, rate, tags, at_us)]
    return [
        Metric(name, _gauge(value) if kind == "gauge" else kind, _number(value), None, rate, tags, at_us)
        for value in values.split(":")
    ]


def _gauge(value: str) -> str:
    return "gauge_delta" if value[:1] in ("+", "-") else "gauge"


def _number(text: str) -> float:
    if not NUMBER.fullmatch(text) or not math.isfinite(number := float(text)):
        raise BadMetric(f"the value {text!r} is not a number")
    return number


def _rate(text: str) -> float:
    if not NUMBER.fullmatch(text) or not 0 < (rate := float(text)) <= 1:
        raise BadMetric(f"the rate {text!r} is not above 0 and up to 1")
    return rate


def _tags(text: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for tag in filter(None, text.split(",")):
        name, _, value = tag.partition(":")
        found[name] = f"{found[name]},{value}" if name in found else value
    return list(found.items())


def _moment(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < LATEST_S:
        raise BadMetric(f"the time {text!r} is not in seconds since 1970")
    return int(text) * 1_000_000
