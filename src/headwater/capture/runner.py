"""Runs a capture in a thread of its own; when the database goes away, waits for it and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from headwater.capture.feeds.spec import FeedSpec
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.errors import CaptureFailed, HeadwaterError, SourceLost
from headwater.log.spec import TopicSpec

AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""How long after a lost connection the next is tried."""


class Capture(Protocol):
    """A source of one kind. All but `run` may be called at any time, from any thread."""

    @property
    def spec(self) -> CaptureSpec | FeedSpec: ...

    def topics(self) -> dict[str, TopicSpec]:
        """The topic of each table, made if it is not there."""

    def run(self, stopped: threading.Event) -> None:
        """One run, until stopped; `SourceLost` if the database went away: a next run goes on where this one was."""

    def status(self) -> CaptureStatus: ...

    def goal(self) -> int:
        """Where the database is now."""

    def reached(self, goal: int) -> bool:
        """Whether everything up to there is in the log."""


class Capturing:
    """An error that another try does not mend ends it, and stays in `failure`."""

    def __init__(self, capture: Capture, say: Callable[[str], None]) -> None:
        self.capture = capture
        self._say = say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"capture {capture.spec.name}", daemon=True)
        self.failure: HeadwaterError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        tries, rows = 0, 0
        while not self._stop.is_set():
            try:
                self.capture.run(self._stop)
            except SourceLost as lost:
                seen = self.capture.status().rows
                if seen == 0 and tries == 0 and self.capture.status().phase == "starting":
                    self.failure = lost  # it never answered: more likely a wrong address than an outage
                    return
                tries = 0 if seen != rows else tries
                rows = seen
                if tries == 0:
                    self._say(f"{lost} Trying again")
                self._stop.wait(AGAIN_S[min(tries, len(AGAIN_S) - 1)])
                tries += 1
            except HeadwaterError as error:
                self.failure = error
                return
            except Exception as error:  # noqa: BLE001 the thread that watches raises it
                self.failure = CaptureFailed(capture=self.capture.spec.name, why=f"{type(error).__name__}: {error}")
                self.failure.__cause__ = error
                return
