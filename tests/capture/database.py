"""A database of a test's own, of whatever kind, and captures of it, named like it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import headwater as hw
from headwater.capture.runner import Capture, Capturing
from headwater.capture.spec import CaptureSettings, CaptureSpec, Tables, topics_of


class CapturedDatabase(ABC):
    def __init__(self, name: str, url: str, log: hw.Log, until: Callable[..., None]) -> None:
        self.name = name
        self.url = url
        self.log = log
        self.until = until
        self.running: list[Capturing] = []

    @abstractmethod
    def run(self, *statements: str) -> None: ...

    @abstractmethod
    def rows(self, query: str) -> Sequence[tuple[Any, ...]]: ...

    @abstractmethod
    def made(self, spec: CaptureSpec) -> Capture:
        """A capture of this kind of database."""

    def capture(self, tables: Tables, **settings: Any) -> Capturing:
        """A capture that runs until the test is over."""
        capture = self.made(CaptureSpec(self.name, self.url, topics_of(tables), CaptureSettings(**settings)))
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        capturing.start()
        self.running.append(capturing)
        return capturing

    def caught_up(self, capturing: Capturing) -> None:
        caught_up(capturing, self.until)

    def failed(self, capturing: Capturing) -> Exception:
        self.until(lambda: capturing.failure is not None, what="a failure")
        assert capturing.failure is not None
        return capturing.failure

    def close(self) -> None:
        for capturing in self.running:
            capturing.stop()


def caught_up(capturing: Capturing, until: Callable[..., None]) -> None:
    """All that the source holds now is in the log; its failure is raised."""
    goal = capturing.capture.goal()

    def there() -> bool:
        if capturing.failure is not None:
            raise capturing.failure
        return capturing.capture.reached(goal)

    until(there, within_s=60, what=f"capture at {goal}")
