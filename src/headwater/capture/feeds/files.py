"""Files that grow, told apart and followed through rotation.

A file is its device and inode: renamed, it is the same one. Since an inode is given to a new file once the old one is
deleted, the first bytes are compared as well. A file that is shorter than what was read of it, or begins otherwise,
was cut (`copytruncate`) or replaced: it is read from its beginning. That is looked at after each read, so what was
read of a file belongs to the file it was read for.

A file that no longer has a name that we look for was rotated away. It is read on while it is open, and looked for by
its inode in its folder when it is not, so that its last lines are not missed; when it has not grown for a while, it is
forgotten.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""What rotation makes of old files; their lines were read before."""
HEAD_BYTES = 1024
IDLE_S = 60.0
"""A file that has not grown for so long is closed; it is opened again when it does."""


@dataclass
class Growing:
    key: str
    """Device and inode."""
    path: str
    """The name under which it was first seen."""
    offset: int = 0
    """All before is appended."""
    head: tuple[int, int] = (0, 0)
    """How many of its first bytes are known, and their checksum."""
    skipping: bool = False
    """Inside of a line that is too long, up to its end."""
    seen: int = 0
    """Read up to here: what lies between `offset` and it is not a whole line yet."""
    known_bytes: int = 0
    """Its size when it was last read."""
    read_at_look: int = 0
    """At which look it was last seen to be read to its end."""
    name: str = ""
    """The one under which it was last opened."""
    descriptor: int | None = field(default=None, repr=False)
    moved_s: float = field(default_factory=time.monotonic)
    """When it was last seen to grow."""

    def read(self, most: int) -> bytes | None:
        """What comes after `offset`; None if the file was cut or is another one by now."""
        assert self.descriptor is not None
        data = os.pread(self.descriptor, most, self.offset)
        size = self.size
        if size < self.offset or not self.is_known():
            return None
        self.known_bytes = size
        return data

    def is_known(self) -> bool:
        """Whether it begins as it did."""
        assert self.descriptor is not None
        length, checksum = self.head
        return _checksum(self.descriptor, length) == (length, checksum)

    def head_after(self, data: bytes) -> tuple[int, int]:
        """The head to remember once `data`, which comes at `offset`, is appended."""
        length, checksum = self.head
        more = data[: HEAD_BYTES - length]
        return length + len(more), google_crc32c.extend(checksum, more)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size if self.descriptor is not None else self.seen

    def begin_again(self) -> None:
        """It was cut, or is another file."""
        self.offset, self.seen, self.known_bytes, self.head, self.skipping = 0, 0, 0, (0, 0), False
        self.path = self.name

    def advance(self, end: int, *, seen: int, head: tuple[int, int], skipping: bool) -> None:
        """All before `end` is appended."""
        self.offset, self.seen, self.head, self.skipping = end, seen, head, skipping
        self.moved_s = time.monotonic()

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def to_state(self) -> dict[str, Any]:
        """As JSON has it: what the next run has to know."""
        return {"path": self.path, "offset": self.offset, "head": list(self.head), "skipping": self.skipping}

    @classmethod
    def from_state(cls, key: str, found: Any) -> Growing:
        length, checksum = found["head"]
        offset = found["offset"]
        return cls(key, found["path"], offset, (length, checksum), found["skipping"], seen=offset)


def _checksum(descriptor: int, length: int) -> tuple[int, int]:
    return length, google_crc32c.value(os.pread(descriptor, length, 0))


def named_by(pattern: str) -> dict[str, tuple[str, int]]:
    """Path and size of each file that the pattern names now, by its key, the oldest first."""
    found = []
    for path in glob.iglob(pattern, recursive=True):
        if not path.endswith(PACKED):
            try:
                about = os.stat(path)
            except OSError:
                continue  # renamed or deleted at this moment: the next look finds what it is then
            if stat.S_ISREG(about.st_mode):
                found.append((about.st_mtime_ns, path, key_of(about), about.st_size))
    return {key: (path, size) for _, path, key, size in sorted(found)}


def opened(path: str) -> tuple[int, str] | None:
    """A descriptor and the key of what it really is; None if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    return descriptor, key_of(os.fstat(descriptor))


def by_inode(folder: str, key: str) -> str | None:
    """The name, in that folder, of a file that was renamed."""
    return next((path for path in _files(folder) if _key(path) == key), None)


def _files(folder: str) -> Iterator[str]:
    try:
        with os.scandir(Path(folder)) as entries:
            yield from [entry.path for entry in entries if entry.is_file()]
    except OSError:
        return


def _key(path: str) -> str | None:
    try:
        return key_of(os.stat(path))
    except OSError:
        return None


def key_of(about: os.stat_result) -> str:
    return f"{about.st_dev}-{about.st_ino}"
