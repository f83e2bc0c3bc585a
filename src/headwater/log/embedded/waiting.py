"""Waiting for appends, also those of other processes: of all threads that wait on a log, one looks for all.

It looks often right after an append came, and the less often the longer none comes. So who follows closely hears of
the next one within a fraction of the time that passes between two, and an idle log costs next to nothing, however many
wait. Since when it is idle is known over all calls: who asks ten times a second has not just begun to wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LEAST_S = 0.0003
MOST_S = 0.005
FRACTION = 0.1
"""Of the time since the last append: so much later than it comes the next one is heard of."""


class Watch:
    def __init__(self, version: Callable[[], int], newest: Callable[[], int]) -> None:
        """`version` costs little, and is another one for the same thread if anything has changed."""
        self._version = version
        self._ask = newest
        self._news = threading.Condition()
        self._newest = 0
        self._since = time.monotonic()
        """When the newest append was heard of."""
        self._looking = False

    def wait(self, after: int, timeout_s: float) -> int:
        """The newest append, as soon as it is greater than `after`, or when the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._version()  # asked first: what changes after it is noticed
            newest = self._told(self._ask())
            if newest > after or time.monotonic() >= deadline:
                return newest
            looks = False
            try:
                with self._news:
                    if self._looking:
                        left = deadline - time.monotonic()
                        self._news.wait_for(lambda: self._newest > after or not self._looking, left)
                        if self._newest > after:
                            return self._newest
                    else:
                        looks = self._looking = True
                if looks:
                    return self._look(version, after, deadline)
            finally:
                if looks:  # no more, also if it was interrupted: now another one does
                    with self._news:
                        self._looking = False
                        self._news.notify_all()

    def _look(self, version: int, after: int, deadline: float) -> int:
        while (now := time.monotonic()) < deadline:
            pause_s = min(MOST_S, max(LEAST_S, (now - self._since) * FRACTION))
            time.sleep(min(pause_s, deadline - now))
            before, version = version, self._version()
            if version != before and self._told(self._ask()) > after:
                break
        return self._newest

    def _told(self, newest: int) -> int:
        with self._news:
            if newest > self._newest:
                self._newest, self._since = newest, time.monotonic()
                self._news.notify_all()
        return newest
