"""A disk that remembers every act on files under a folder, in order, with what was written: the journal of a run.

`environment()` is for a child process (see `preloaded`). Inside of the child, `record` begins, and `mark` notes the
program's own words between the acts: what it has been told is safe, before it goes on. `power_cut` makes of a journal
what a disk may hold after the current fails.
"""

from __future__ import annotations

import ctypes
import json
import struct
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from headwater.testing import faulty_disk, preloaded

SOURCE = Path(__file__).with_name("recording_disk.c")
_HEAD = struct.Struct("<cIIQQ")


class Kind(Enum):
    CREATED = "C"
    FOLDER_MADE = "M"
    WRITTEN = "W"
    TRUNCATED = "T"
    SYNCED = "S"
    RENAMED = "R"
    LINKED = "L"
    UNLINKED = "U"
    FOLDER_REMOVED = "D"
    MARK = "A"


@dataclass(frozen=True)
class Act:
    kind: Kind
    path: str = ""
    other: str = ""
    """Where it was renamed or linked to."""
    at: int = 0
    """Where it was written; the size it was truncated to."""
    data: bytes = b""

    @property
    def marked(self) -> Any:
        """What a mark says."""
        return json.loads(self.data)


def environment() -> dict[str, str]:
    """With the faulty disk behind it: an act that fails, or that the process dies at, is not recorded."""
    return preloaded.environment(SOURCE, faulty_disk.SOURCE)


def record(folder: Path, journal: Path) -> None:
    """From now on, in this process and its forks; goes on in a journal that is there."""
    if not _loaded().recording_start(str(folder).encode(), str(journal).encode()):
        raise OSError(f"the journal {journal} cannot be opened")


def mark(words: Any) -> None:
    """Anything that JSON has."""
    _loaded().recording_mark(json.dumps(words).encode())


def read_journal(journal: Path) -> list[Act]:
    content = journal.read_bytes()
    acts, place = [], 0
    while place < len(content):
        kind, path_size, other_size, at, size = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        path = content[place : (place := place + path_size)].decode()
        other = content[place : (place := place + other_size)].decode()
        data = content[place : (place := place + size)]
        acts.append(Act(Kind(kind.decode()), path, other, at, data))
    return acts


def _loaded() -> ctypes.CDLL:
    library = preloaded.loaded(SOURCE)
    library.recording_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.recording_mark.argtypes = [ctypes.c_char_p]
    return library
