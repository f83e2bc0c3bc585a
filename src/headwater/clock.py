"""The injected clock: whoever stamps or waits takes one, so that tests decide what time it is. And a device's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

Clock = Callable[[], int]
"""Microseconds since the epoch, UTC."""

Time = TypeVar("Time", int, datetime)


def system_clock() -> int:
    return time.time_ns() // 1000


def corrected(happened: Time, sent: Time | None, received: Time) -> Time:
    """When it happened by our clock: the device says when it happened and when it was sent, both by its own clock; we
    know when it was received, by ours. What sent and received are apart is how wrong the device's clock is.

    The way here counts as part of that: a result is late by the time a message travels. Nothing happens after it was
    received, so no result is later: a device's clock that was set back in between cannot push time ahead. A device that
    does not say when it sent is believed, up to that bound. All three in microseconds, or all as datetimes.
    """
    by_our_clock = happened if sent is None else received - (sent - happened)
    return min(by_our_clock, received)
