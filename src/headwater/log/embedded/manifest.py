"""What a backup says of itself: `backup.json`, written last, read first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import BadBackup, HeadwaterError

MANIFEST = "backup.json"
MANIFEST_FORMAT = 2
"""Format 1 had neither `files` nor `left_out`: the log alone."""


@dataclass(frozen=True)
class LeftOut:
    """Something derived that is not in the backup, and what becomes of it after a restore."""

    what: str
    why: str
    then: str

    def __str__(self) -> str:
        return f"{self.what} is not in it: {self.why}. {self.then}."


@dataclass(frozen=True)
class Manifest:
    format: int
    log_format: int
    made_at: str
    source: str
    append: int
    """The last append that the backup has."""
    position: str
    digest: str
    records: int
    size: int
    catalog_crc: int
    files: Mapping[str, int] = field(default_factory=dict)
    """What is derived from the log, beside it: each file with its CRC-32C."""
    left_out: tuple[LeftOut, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def read_manifest(folder: Path) -> Manifest:
    try:
        told: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if not 1 <= told["format"] <= MANIFEST_FORMAT:
            raise BadBackup(folder=str(folder), why=f"it has format {told['format']}, known is {MANIFEST_FORMAT}")
        left_out = tuple(LeftOut(**each) for each in told.get("left_out", ()))
        return Manifest(**{**told, "left_out": left_out})
    except FileNotFoundError:
        raise BadBackup(folder=str(folder), why=f"there is no {MANIFEST} in it") from None
    except HeadwaterError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadBackup(folder=str(folder), why=f"{MANIFEST} cannot be read ({error})") from None
