"""Processes that keep crossing each other at the same aggregates take turns for a while.

Without it, of twenty processes that decide on one aggregate at the same moment one gets through and nineteen decide
again. It is a courtesy, not a lock that anything depends on: who waited too long goes on without it, and the log's
condition on versions decides as always.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 1.0
LONG_S = 0.5
"""For so long after a conflict the next one is expected."""
POLL_S = 0.0005


class Turnstile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._until = 0.0

    def crossed(self) -> None:
        """Somebody else was faster."""
        self._until = time.monotonic() + LONG_S

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        if time.monotonic() >= self._until:
            yield
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        taken = self._take(self._file)
        try:
            yield
        finally:
            if taken:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _take(self, file: int) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(POLL_S)
        return False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
