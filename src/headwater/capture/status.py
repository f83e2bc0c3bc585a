"""How a capture stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CaptureStatus:
    name: str
    phase: str
    """starting, snapshot, comparing (tables with their topics), streaming, polling; of feeds: listening, reading"""
    rows: int
    """Appended by this run."""
    snapshot_rows: int = 0
    snapshot_about: int = 0
    position: str = ""
    lag_bytes: int | None = None
    """What the server has written and we have not captured; unknown while it does not answer."""
    slot_bytes: int | None = None
    """The WAL that the server keeps for us."""
    alert: str = ""
    when_slow: str = ""
    """What a feed does then: block, drop_oldest or drop_newest."""
    waiting: str = ""
    """Why it cannot append at this moment."""
    buffered_bytes: int = 0
    bad: int = 0
    """Lines that could not be read, over all runs, as are these two:"""
    dropped: int = 0
    lost: int = 0
    seen: int = 0
    """Messages that were delivered before, and left out."""
    dead: int = 0
    """Messages that could not be read, and were put aside."""
