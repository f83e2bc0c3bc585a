"""A view that stays where it is while the others of its query go on: after an error, or because the code lacks it.

<query>/parked/<producer>.json   {"why", "start", "end"}: what it was to read in the batch that went by without it
"""

from __future__ import annotations

import json
from pathlib import Path

from headwater.log.position import Position
from headwater.log.protocol import Progress


def park(query: Path, producer: str, progress: Progress, why: str) -> None:
    """Put in place as a whole."""
    file = _file(query, producer)
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"why": why, "start": str(progress.start), "end": str(progress.end)}))
    part.replace(file)


def parked(query: Path, producer: str) -> Progress | None:
    """What it did not read, the last time that it was parked."""
    file = _file(query, producer)
    if not file.exists():
        return None
    told = json.loads(file.read_text())
    return Progress(Position.parse(told["start"]), Position.parse(told["end"]))


def _file(query: Path, producer: str) -> Path:
    return query / "parked" / f"{producer}.json"
