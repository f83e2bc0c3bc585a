"""Each side in a process of its own, one after the other: a JVM of another side would take cores and memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
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


def told_to_stop(pipe: Connection, within_s: float) -> bool:
    return pipe.poll(within_s)


def rates_of(rows: int, seconds: Iterable[float]) -> dict[str, Any]:
    """Rows a second: the median counts, all are told."""
    rates = [round(rows / each) for each in seconds]
    return {"rows_per_s": round(statistics.median(rates)), "rounds": rates}
