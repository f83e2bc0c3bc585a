"""Our side: each measurement is a process of its own, so that nothing shares its interpreter or its memory."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import headwater as hw
from headwater.capture.postgres.capture import PostgresCapture
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSpec

POLL_S = 0.002


def capture(url: str, log: str, name: str, table: str) -> Capturing:
    opened = hw.open(log)
    capturing = Capturing(PostgresCapture(CaptureSpec(name, url, {table: table}), opened), lambda text: None)
    capturing.capture.topics()
    return capturing


def await_goal(capturing: Capturing) -> None:
    goal = capturing.capture.goal()
    while not capturing.capture.reached(goal):
        if capturing.failure is not None:
            raise capturing.failure
        time.sleep(POLL_S)


def timed(url: str, log: str, name: str, table: str, warm: str, pipe: Connection) -> None:
    """Seconds from the start of a capture until it has caught up; compiled code is loaded before, on another table."""
    first = capture(url, f"{log}-warm", f"{name}_warm", warm)
    first.start()
    await_goal(first)
    first.stop()
    measured = capture(url, log, name, table)
    pipe.send("ready")
    pipe.recv()
    begun = time.perf_counter()
    measured.start()
    await_goal(measured)
    pipe.send((time.perf_counter() - begun, measured.capture.status().rows, peak_mb()))
    measured.stop()


def running(url: str, log: str, name: str, table: str, pipe: Connection) -> None:
    """A capture that runs until it is told to end; then its peak of memory, since it was told "measure"."""
    capturing = capture(url, log, name, table)
    capturing.start()
    await_goal(capturing)
    pipe.send("ready")
    before = anonymous_mb()
    peak, over = before, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.01):
            peak = max(peak, anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    pipe.recv()
    await_goal(capturing)
    over.set()
    watcher.join()
    pipe.send({"rows": capturing.capture.status().rows, "before_mb": round(before), "peak_mb": round(peak)})
    capturing.stop()


def anonymous_mb() -> float:
    return _status_mb("RssAnon:")


def peak_mb() -> float:
    return _status_mb("VmHWM:")


def _status_mb(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"this kernel does not tell {name}")
