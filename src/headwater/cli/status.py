"""How the pipelines of a running app stand: a line that renews itself on a terminal, now and then one elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.capture.status import CaptureStatus
from headwater.serve.serving import StoreStatus

if TYPE_CHECKING:
    from headwater.process.pipeline import Status

SELDOM_S = 30.0
"""How often a line is written where nobody watches, if anything moved."""


class StatusLine:
    def __init__(self, app: str) -> None:
        self._app = app
        self._live = sys.stderr.isatty()
        self._before: dict[str, tuple[float, Status | CaptureStatus | StoreStatus]] = {}
        self._written = 0.0
        self._shown = False

    def show(self, statuses: Sequence[Status | CaptureStatus | StoreStatus]) -> None:
        now = time.monotonic()
        told = " | ".join(self._told(status, now) for status in statuses)
        moved = any(self._before.get(each.name, (0.0, None))[1] != each for each in statuses)
        self._before |= {status.name: (now, status) for status in statuses}
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{self._app}: {told}"[: _width() + 5])
            sys.stderr.flush()
            self._shown = True
        elif moved and now - self._written >= SELDOM_S:
            self._written = now
            sys.stderr.write(f"{self._app}: {told}\n")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        self.clear()
        sys.stderr.write(f"{self._app}: {text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            self._shown = False

    def _told(self, status: Status | CaptureStatus | StoreStatus, now: float) -> str:
        if isinstance(status, StoreStatus):
            return _served(status)
        then, before = self._before.get(status.name, (now, status))
        seconds = now - then
        if isinstance(status, CaptureStatus):
            return _captured(status, status.rows - before.rows if isinstance(before, CaptureStatus) else 0, seconds)
        if isinstance(before, CaptureStatus | StoreStatus):
            before, seconds = status, 0.0
        rates = [
            _short((new - old) / seconds) if seconds else "-"
            for new, old in ((status.rows_in, before.rows_in), (status.rows_out, before.rows_out))
        ]
        took = f", batch {_seconds(status.batch_s)}" if status.batch_s is not None else ""
        late = f", {_short(status.late)} late" if status.late else ""
        return f"{status.name} {rates[0]}/s in, {rates[1]}/s out, lag {_short(status.lag)}{late}{took}"


def _captured(status: CaptureStatus, rows: int, seconds: float) -> str:
    rate = _short(rows / seconds) if seconds else "-"
    if status.phase == "snapshot":
        part = min(100, 100 * status.snapshot_rows // max(1, status.snapshot_about))
        return f"capture {status.name}: snapshot {part} % ({_short(status.snapshot_rows)} rows), {rate}/s"
    behind = f", {_short(status.lag_bytes)}B behind" if status.lag_bytes else ""
    counted = {"bad": status.bad, "dropped": status.dropped, "lost": status.lost}
    told = "".join(f", {_short(count)} {word}" for word, count in counted.items() if count)
    waits = f", waiting ({status.when_slow}): {status.waiting}" if status.waiting else ""
    alert = f" ({status.alert})" if status.alert else ""
    return f"capture {status.name}: {status.phase}, {rate}/s{behind}{told}{waits}{alert}"


def _served(status: StoreStatus) -> str:
    lag = "no answer" if status.lag is None else f"lag {_short(status.lag)}"
    words = " ".join(filter(None, (status.failure, status.alert)))
    return f"{status.name}: {lag}" + (f" ({words})" if words else "")


def _short(number: float) -> str:
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= bound:
            return f"{number / (bound if letter != 'k' else 1e3):.1f}{letter}"
    return f"{number:.0f}"


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _seconds(span: float) -> str:
    return f"{span:.1f} s" if span >= 0.1 else f"{span * 1000:.0f} ms"
