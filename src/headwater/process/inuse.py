"""Whether an app runs over a data folder: who runs says so by a lock, and so does who needs that nobody does.

A run has a shared lock on `pipelines/run.lock`; forgetting, which takes checkpoints and stores away, has it alone. The
kernel lets go of it when the process ends, however it ends. Neither waits: who comes second is told.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import AppRunning, ForgettingUnderWay

LOCK = "run.lock"


@contextmanager
def in_use(root: Path) -> Iterator[None]:
    """For a run, or a rebuild; any number at once."""
    with _opened(root) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ForgettingUnderWay(folder=str(root)) from None
        yield


@contextmanager
def not_in_use(root: Path) -> Iterator[None]:
    with _opened(root) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AppRunning(folder=str(root)) from None
        yield


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    folder = root / "pipelines"
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)
