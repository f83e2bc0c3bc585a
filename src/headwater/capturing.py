"""The captures of an app: declared, started in the order of their declaration, and waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack

from headwater.capture.feeds.spec import FeedSpec
from headwater.capture.runner import Capture, Capturing
from headwater.capture.spec import MESSAGES, CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.errors import UsageError
from headwater.log import Log, Topic

WATCH_S = 0.1
STATUS_S = 1.0


class Captures:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._declared: dict[str, Capture] = {}
        self.topics: set[str] = set()
        """The names of those that it fills."""
        self._running: list[Capturing] = []

    def __bool__(self) -> bool:
        return bool(self._declared)

    def declare(self, spec: CaptureSpec | FeedSpec, *, taken: Collection[str]) -> dict[str, Topic]:
        """The topic of each of its tables; `taken` are names that others have."""
        from headwater.capture.sources import capture_of

        if spec.name in self._declared:
            raise UsageError(what=f"capture {spec.name!r} is declared twice", do="Give one of them another name=")
        capture = capture_of(spec, self._log)
        captured = {table: Topic(self._log, each) for table, each in capture.topics().items()}
        given = spec.into.name if isinstance(spec, FeedSpec) and isinstance(spec.into, Topic) else None
        if spec.url.startswith(MESSAGES):  # into topics that the user has declared
            taken = self.topics
        for table, topic in captured.items():
            if topic.name in taken and topic.name != given:
                do = f"Capture the table into another topic: tables={{{table!r}: 'ANOTHER'}}"
                raise UsageError(what=f"{topic.name!r} is declared twice", do=do)
        self._declared[spec.name] = capture
        self.topics |= {topic.name for topic in captured.values()}
        return captured

    def start(self, stack: ExitStack, say: Callable[[str], None]) -> None:
        """Each in a thread of its own, until the stack is left."""
        self._running = [Capturing(capture, say) for capture in self._declared.values()]
        for each in self._running:
            each.start()
            stack.callback(each.stop)

    def check(self) -> None:
        """Raise what has ended one of them."""
        for each in self._running:
            if each.failure is not None:
                raise each.failure

    def statuses(self) -> list[CaptureStatus]:
        return [each.capture.status() for each in self._running]

    def wait(
        self,
        stopped: threading.Event,
        show: Callable[[list[CaptureStatus]], None] | None,
        *,
        caught_up: bool,
    ) -> None:
        """Until stopped or, if so asked, until all that the databases had committed at the call is in the log."""
        goals = [(each.capture, each.capture.goal()) for each in self._running] if caught_up else []
        shown = 0.0
        while not stopped.wait(WATCH_S):
            self.check()
            if show is not None and time.monotonic() - shown >= STATUS_S:
                show(self.statuses())
                shown = time.monotonic()
            if caught_up and all(capture.reached(goal) for capture, goal in goals):
                return
