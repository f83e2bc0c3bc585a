"""The locks beside SQLite's. The writers': writers of all processes queue in the kernel, first come first served.

SQLite alone lets waiting writers sleep and try again, so that an unlucky one starves. Here a writer that finds the lock
taken blocks in `flock`, whose waiters the kernel wakes in order; a helper thread does the blocking, so that the wait
has an end. Whoever holds the lock has written its process id into the file: it is named to those who gave up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

from headwater.errors import Busy, StorageFailed


class WriterLock:
    """Not for threads among themselves: one thread of a process at a time (see `Committer`)."""

    def __init__(self, path: Path, *, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s
        self._own = self._open()
        self._held: int | None = None

    def acquire(self) -> None:
        try:
            fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._held = self._own
        except BlockingIOError:
            self._held = self._acquire_in_turn()
        own = b"%-19d\n" % os.getpid()
        with contextlib.suppress(OSError):  # only for those who wait: a disk that is full must not keep us from it
            if os.pread(self._held, len(own), 0) != own:  # as a rule it is there since the last time
                os.pwrite(self._held, own, 0)

    def release(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        if held == self._own:
            fcntl.flock(held, fcntl.LOCK_UN)
        else:
            os.close(held)

    def close(self) -> None:
        self.release()
        os.close(self._own)

    def _acquire_in_turn(self) -> int:
        began = time.monotonic()
        waiting = _Waiting(self._open())
        if not waiting.acquired.wait(self._patience_s) and waiting.give_up():
            raise Busy(path=str(self._path.parent), waited_s=time.monotonic() - began, holder=self._holder())
        return waiting.file

    def _holder(self) -> int | None:
        text = os.pread(self._own, 20, 0).strip()
        return int(text) if text.isdigit() else None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(act="opening", file=str(self._path), why=error.strerror or str(error)) from error


class _Waiting:
    """One wait in the kernel's queue, on an opening of the file of its own: to that opening a lock belongs, so one that
    is got after its waiter gave up is let go without touching any other of this process."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.acquired = threading.Event()
        self._decision = threading.Lock()
        self._given_up = False
        threading.Thread(target=self._wait, name="writer lock", daemon=True).start()

    def _wait(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with self._decision:
            if self._given_up:
                os.close(self.file)
            else:
                self.acquired.set()

    def give_up(self) -> bool:
        """True unless the lock was got in the meantime."""
        with self._decision:
            self._given_up = not self.acquired.is_set()
            return self._given_up


class UsersLock:
    """Says whether this is the first process to open a log: then what lies there was left by a crash or a clean end.

    Opening SQLite's WAL first is what cuts it; who opens it later finds it in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(act="opening", file=str(path), why=error.strerror or str(error)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.first = True
        except BlockingIOError:
            self.first = False

    def share(self, *, patience_s: float) -> None:
        """From now on others are not the first; waits for one that is just looking."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy(path=str(self._path.parent), waited_s=patience_s) from None
                time.sleep(0.01)

    def close(self) -> None:
        os.close(self._file)
