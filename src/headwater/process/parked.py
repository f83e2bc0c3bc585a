"""A view that stays where it is while the others of its query go on: after an error, or because the code lacks it.

<query>/parked/<producer>.json   {"why", "start", "end"}: what it was to read in the batch that went by
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headwater.log.position import Position
from headwater.log.protocol import Progress


@dataclass(frozen=True)
class Parked:
    progress: Progress


def park(query: Path, producer: str, progress: Progress, why: str) -> None:
    """Put in place as a whole."""
    file = _file(query, producer)
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    told = {"why": why, "start": str(progress.start), "end": str(progress.end)}
    part.write_text(json.dumps(told))
    part.replace(file)


def parked(query: Path, producer: str) -> Parked | None:
    """The last time that it was parked."""
    file = _file(query, producer)
    if not file.exists():
        return None
    told = json.loads(file.read_text())
    return Parked(Progress(Position.parse(told["start"]), Position.parse(told["end"])))


def unpark(query: Path, producer: str) -> None:
    """The batch that went by has not yet gone by: it will run again with the view in it."""
    _file(query, producer).unlink(missing_ok=True)


def files_of(root: Path, producer: str) -> list[Path]:
    """What there is of it in all shared queries below `root`. Why it was parked may quote rows."""
    files = [_file(query, producer) for query in sorted(root.glob("queries/*"))]
    return [path for file in files for path in (file, file.with_suffix(".part")) if path.exists()]


def _file(query: Path, producer: str) -> Path:
    return query / "parked" / f"{producer}.json"
