"""A bell that writers ring after a commit, so that who waits in another process hears of it at once.

To ring is to open the file `bell` of the log and close it again, which writes nothing; Linux tells those who watch a
file of it (inotify). It is a help and no promise: a writer may be killed before it rings, and elsewhere than on Linux
nobody hears it. So who waits looks from time to time all the same.
"""

from __future__ import annotations

import os
import select
import sys
import weakref
from contextlib import suppress
from pathlib import Path

_IN_OPEN = 0x20
_EVENTS = 4096


class Bell:
    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)

    def ring(self) -> None:
        with suppress(OSError):  # as a rule because nobody has listened to this log yet
            os.close(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))

    def listen(self) -> Ear | None:
        """None where it cannot be heard."""
        if sys.platform != "linux":
            return None
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            return Ear(_watching(self._path))
        except OSError:  # a log that one may only read, or no watches left: look often instead
            return None


class Ear:
    """Hears all that is rung from its making on, also while nobody waits."""

    def __init__(self, watching: int) -> None:
        self._watching = watching
        self._close = weakref.finalize(self, os.close, watching)
        self._poll = select.poll()
        self._poll.register(watching, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Until the bell is or was rung, but no longer than that."""
        if self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(self._watching, _EVENTS)

    def close(self) -> None:
        self._close()


def _watching(path: str) -> int:
    import ctypes  # takes milliseconds to load, and most processes never wait

    libc = ctypes.CDLL(None, use_errno=True)
    watching: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watching < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if libc.inotify_add_watch(watching, os.fsencode(path), _IN_OPEN) < 0:
        error = ctypes.get_errno()
        os.close(watching)
        raise OSError(error, "inotify_add_watch")
    return watching
