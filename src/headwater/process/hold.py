"""A hold: pipelines stay between two batches while somebody copies what they and the log have written.

Who holds has a shared lock on `pipelines/hold.lock`; the kernel lets go of it when that process ends, however it ends.
A pipeline asks before it plans a batch, and is told "nothing new" as long as somebody holds. A batch that was planned
already runs to its end: who holds waits for that, and checks what it has got.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "hold.lock"


@contextmanager
def holding(pipelines: Path) -> Iterator[None]:
    file = os.open(pipelines / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
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
