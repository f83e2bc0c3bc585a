"""The report of forgetting: what was removed where, what is built again, and what remains, where and until when.

It never holds the data itself, nor the keys: who kept it would not have forgotten. It is kept in the data folder:

    forgotten/<time>.json   written when all is removed, and again when all is built
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = "forgotten"


@dataclass(frozen=True)
class Removed:
    where: str
    what: str
    count: int


@dataclass(frozen=True)
class BuiltAgain:
    view: str
    version: int
    app: str
    built: bool
    """False: the next run of its app builds it."""


@dataclass(frozen=True)
class Remains:
    where: str
    what: str
    until: str


@dataclass(frozen=True)
class Report:
    topic: str
    keys: int
    at: datetime
    dry_run: bool
    """Then it says what would be removed; nothing was."""
    removed: tuple[Removed, ...]
    built_again: tuple[BuiltAgain, ...]
    remains: tuple[Remains, ...]

    @property
    def records(self) -> int:
        """Of the keys, in the topic and in copies of it."""
        return sum(each.count for each in self.removed if each.what == "records")

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}

    def built(self, names: tuple[str, ...]) -> Report:
        done = [replace(each, built=each.built or each.view in names) for each in self.built_again]
        return replace(self, built_again=tuple(done))

    def write(self, root: Path) -> Path:
        """As a whole, in place of the one of the same act; durable before this returns."""
        folder = root / FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}.json"
        part = path.with_suffix(".part")
        with part.open("w") as file:
            json.dump(self.as_json(), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(folder)
        return path


def sync_folder(folder: Path) -> None:
    """Make the names in it durable: those that were removed do not come back with a power cut."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
