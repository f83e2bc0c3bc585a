"""A disk that fails, or a process that dies, at the Nth write, sync, rename, unlink or creation under a folder.

`environment()` is for a child process: it preloads a small C library, compiled on first use, between program and
kernel, so SQLite's files are covered as ours are. Inside of the child, `arm` says what goes wrong next.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("faulty_disk.c")


class Fault(IntEnum):
    DIES = 0
    IO_ERROR = 5
    NO_SPACE = 28


def can_build() -> bool:
    return shutil.which("cc") is not None


def environment() -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(_library())}


def arm(folder: Path, nth: int, fault: Fault, *, sticky: bool = False) -> None:
    """The nth act from now goes wrong (0: none, only count); with `sticky` all after it too."""
    _loaded().faulty_arm(str(folder).encode(), nth, int(sticky), int(fault))


def disarm() -> int:
    """Back to a good disk; returns how many acts were counted."""
    return int(_loaded().faulty_disarm())


def _loaded() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_library()))
    library.faulty_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.faulty_disarm.restype = ctypes.c_long
    return library


def _library() -> Path:
    digest = hashlib.blake2b(SOURCE.read_bytes(), digest_size=8).hexdigest()
    built = Path(tempfile.gettempdir()) / f"headwater-faulty-disk-{os.getuid()}-{digest}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(part), str(SOURCE), "-ldl"], check=True)
        os.replace(part, built)
    return built
