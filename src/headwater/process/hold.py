"""A hold: pipelines stay between two batches while somebody copies what they and the log have written.

Who holds has a shared lock on `pipelines/hold.lock`; the kernel lets go of it when that process ends, however it ends.
A pipeline asks before it plans a batch, and is told "nothing new" as long as somebody holds. A batch that was planned
already runs to its end: who holds waits for that, and checks what it has got. Batches that run without Spark have a
shared lock on `pipelines/batch.lock` meanwhile, so that who holds begins when they are through.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "hold.lock"
BATCH = "batch.lock"


@contextmanager
def holding(pipelines: Path) -> Iterator[None]:
    with _locked(pipelines / LOCK, fcntl.LOCK_SH):
        with _locked(pipelines / BATCH, fcntl.LOCK_EX):
            pass
        yield


@contextmanager
def batch_unless_held(pipelines: Path) -> Iterator[bool]:
    """Whether a batch may run inside; then who wants to hold waits for its end."""
    with _locked(pipelines / BATCH, fcntl.LOCK_SH):  # before one asks: or a hold could begin in between
        yield not held(pipelines)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def held(pipelines: Path) -> bool:
    try:
        file = os.open(pipelines / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
