"""Each side in a process of its own, one after the other: a JVM of another side would take cores and memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
STAGE_S = 1800.0
"""No stage takes longer: what is not through by then has failed."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Deadline:
    def __init__(self, what: str, seconds: float = STAGE_S) -> None:
        self._what, self._seconds = what, seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self._what}: not through after {self._seconds:g} s")
        return left


class Child:
    """A function in a process of its own; what it returns or raises comes back. It gets a pipe as its last argument."""

    def __init__(self, work: Callable[..., Any], *arguments: object) -> None:
        self._name = work.__name__
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_run, args=(work, arguments, theirs))
        self._process.start()
        theirs.close()  # so that a child that dies is heard at once: EOFError

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, word: str) -> None:
        self._pipe.send(("word", word))

    def hear(self, within_s: float = STAGE_S) -> Any:
        """The next word of the child, or its answer."""
        try:
            if not self._pipe.poll(within_s):
                raise TimeoutError(f"{self._name}: nothing heard for {within_s:g} s")
            kind, word = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"{self._name}: ended without a word") from None
        finally:
            if not self._process.is_alive():
                self._process.join(30)
        if kind == "error":
            raise RuntimeError(f"{self._name}: {word}")
        return word

    def answer(self, within_s: float = STAGE_S) -> Any:
        try:
            return self.hear(within_s)
        finally:
            self.end()

    def end(self) -> None:
        """Wait a little, then kill it and what it has started (its session: see `_run`)."""
        self._process.join(60)
        if self._process.is_alive():
            os.killpg(self.pid, signal.SIGKILL)
            self._process.join(30)


def alone(work: Callable[..., Any], *arguments: object) -> Any:
    return Child(_without_pipe, work, *arguments).answer()


def _without_pipe(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments[:-1])


def _run(work: Callable[..., Any], arguments: tuple[object, ...], pipe: Connection) -> None:
    os.setsid()
    try:
        pipe.send(("answer", work(*arguments, pipe)))
    except BaseException:  # noqa: BLE001
        pipe.send(("error", traceback.format_exc()))


class Stopwatch:
    """Seconds of each lap, and how many cores others had in them: on a shared machine a rate says little without."""

    def __init__(self) -> None:
        self._laps: list[tuple[float, float]] = []

    @contextmanager
    def lap(self) -> Iterator[None]:
        start, busy, before = time.monotonic(), _busy_s(), cpu_s_below(os.getpid())
        yield
        took = time.monotonic() - start
        # Workers that have ended meanwhile are counted among the others: an upper bound.
        own = sum(spent - before.get(pid, 0.0) for pid, spent in cpu_s_below(os.getpid()).items())
        self._laps.append((took, max(0.0, _busy_s() - busy - own) / took))

    @property
    def last_s(self) -> float:
        return self._laps[-1][0]

    def add(self, seconds: float) -> None:
        """A lap that something else has timed."""
        self._laps.append((seconds, 0.0))

    def rates(self, rows: int, *, skip: int = 1) -> dict[str, Any]:
        """Rows a second without the first laps: the median counts, all are told."""
        counted = self._laps[skip:]
        rates = [round(rows / took) for took, _ in counted]
        others = round(statistics.median(cores for _, cores in counted), 2)
        return {"rows_per_s": round(statistics.median(rates)), "rounds": rates, "cores_of_others": others}

    def first_rate(self, rows: int) -> int:
        return round(rows / self._laps[0][0])


def processes_below(root: int) -> list[int]:
    """`root` and all that it has started, and so on."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                children[_stat(int(entry.name))[0]].append(int(entry.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def cpu_s_below(root: int) -> dict[int, float]:
    found = {}
    for pid in processes_below(root):
        with suppress(OSError):
            found[pid] = _stat(pid)[1]
    return found


def _stat(pid: int) -> tuple[int, float]:
    """A process's parent, and the CPU seconds of itself and of those that it has seen end."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _busy_s() -> float:
    user, nice, system, _idle, _wait, *interrupts = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
