"""The injected clock: whoever stamps or waits takes one, so that tests decide what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since the epoch, UTC."""


def system_clock() -> int:
    return time.time_ns() // 1000
