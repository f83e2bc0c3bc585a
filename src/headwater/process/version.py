"""One version of a pipeline: what it was built with, where its output is, and whether it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from headwater.process.diff import Description

State = Literal["building", "built", "current", "previous", "dropped"]
READY: tuple[State, ...] = ("built", "previous")
"""What can be made current."""


@dataclass(frozen=True)
class Version:
    name: str
    version: int
    fingerprint: str
    description: Description
    """What the code was; empty if it was built before this was recorded."""
    inputs: Mapping[str, str]
    """The inputs as the code names them, each with the topic that is read: of a pipeline, that of one version of it."""
    state: State
    app: str = ""
    from_retained: bool = False
    """Built from what retention had left."""
    made_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def topic(self) -> str:
        """Where its output goes."""
        return topic_of(self.name, self.version)

    @property
    def tag(self) -> str:
        """Names its folder and its store. The same code may be built twice, so the number is part of it; the first
        version goes without, as before there were others."""
        return self.fingerprint if self.version == 1 else f"{self.fingerprint}.v{self.version}"

    @property
    def producer(self) -> str:
        return f"{self.name}@{self.tag}"

    def folder(self, root: Path) -> Path:
        """Where its state is, and Spark's checkpoint if it has a query of its own."""
        return root / "pipelines" / self.name / self.tag

    def store(self, root: Path) -> Path:
        return root / "stores" / f"{self.producer}.db"


def topic_of(name: str, version: int) -> str:
    return name if version == 1 else f"{name}.v{version}"


def first_versions(root: Path) -> dict[str, str]:
    """The fingerprints of pipelines that have a folder, by name: so those that no record names are found."""
    folders = [folder for folder in (root / "pipelines").glob("*/*") if folder.is_dir() and ".v" not in folder.name]
    return {folder.parent.name: folder.name for folder in sorted(folders, key=lambda each: each.stat().st_mtime)}
