"""Lengths of time as users write them: `10 minutes`, `1 h`, `500 ms`, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from headwater.errors import UsageError

Duration = str | timedelta

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}


def microseconds(duration: Duration) -> int:
    if isinstance(duration, timedelta):
        amount = duration // timedelta(microseconds=1)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)", duration) if isinstance(duration, str) else []
        units = [_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) for _, unit in parts]
        rest = re.sub(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)", "", duration).strip() if isinstance(duration, str) else "x"
        if not parts or rest or None in units:
            raise UsageError(what=f"{duration!r} is no length of time", do="Say e.g. '10 minutes', '1 hour 30 s'")
        amount = round(sum(float(number) * (unit or 0) for (number, _), unit in zip(parts, units, strict=True)))
    if amount < 0:
        raise UsageError(what=f"{duration!r} is below zero", do="Give a length of time")
    return amount
