"""Waiting for appends, also those of other processes: of all threads that wait on a log, one looks for all.

It looks when the writers' bell rings, and now and then all the same. Where there is no bell, it looks often right after
an append came, and the less often the longer none comes. So who follows closely hears of the next one within a fraction
of the time that passes between two, and an idle log costs next to nothing, however many wait. Since when it is idle is
known over all calls: who asks ten times a second has not just begun to wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.log.embedded.bell import Ear

LEAST_S = 0.0003
MOST_S = 0.005
FRACTION = 0.1
"""Of the time since the last append: so much later than it comes the next one is heard of."""
UNRUNG_S = 0.1
"""So late at the most an append is heard of whose writer did not get to ring the bell."""


class Watch:
    def __init__(
        self, version: Callable[[], int], newest: Callable[[], int], *, listen: Callable[[], Ear | None] = lambda: None
    ) -> None:
        """`version` costs little, and is another one for the same thread if anything has changed."""
        self._version = version
        self._ask = newest
        self._listen = listen
        self._ear: Ear | None = None
        self._listened = False
        self._news = threading.Condition()
        self._newest = 0
        self._since = time.monotonic()
        """When the newest append was heard of."""
        self._looking = False
        self._closed = False

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
                    if self._newest > after:  # heard by who looked until just now
                        return self._newest
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
                        if self._closed:
                            self._hang_up()

    def close(self) -> None:
        """Who looks just now hangs up when it is through."""
        with self._news:
            self._closed = True
            if not self._looking:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None

    def _look(self, version: int, after: int, deadline: float) -> int:
        first = not self._listened
        if first:
            self._listened, self._ear = True, self._listen()
        while (now := time.monotonic()) < deadline:
            if not (first and self._ear):  # what was rung before anybody listened was not heard
                self._pause(now, deadline - now)
            first = False
            before, version = version, self._version()
            if version != before and self._told(self._ask()) > after:
                break
        return self._newest

    def _pause(self, now: float, left_s: float) -> None:
        if self._ear is not None:
            self._ear.wait(min(UNRUNG_S, left_s))
        else:
            time.sleep(min(MOST_S, max(LEAST_S, (now - self._since) * FRACTION), left_s))

    def _told(self, newest: int) -> int:
        with self._news:
            if newest > self._newest:
                self._newest, self._since = newest, time.monotonic()
                self._news.notify_all()
        return newest
