"""A disk that fails, or a process that dies, at the Nth write, sync, rename, unlink or creation under a folder.

`environment()` is for a child process (see `preloaded`). Inside of the child, `arm` says what goes wrong next.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from pathlib import Path

from headwater.testing import preloaded
from headwater.testing.preloaded import can_build

__all__ = ["SOURCE", "Fault", "arm", "can_build", "disarm", "environment"]

SOURCE = Path(__file__).with_name("faulty_disk.c")


class Fault(IntEnum):
    DIES = 0
    IO_ERROR = 5
    NO_SPACE = 28


def environment() -> dict[str, str]:
    return preloaded.environment(SOURCE)


def arm(folder: Path, nth: int, fault: Fault, *, sticky: bool = False) -> None:
    """The nth act from now goes wrong (0: none, only count); with `sticky` all after it too."""
    _loaded().faulty_arm(str(folder).encode(), nth, int(sticky), int(fault))


def disarm() -> int:
    """Back to a good disk; returns how many acts were counted."""
    return int(_loaded().faulty_disarm())


def _loaded() -> ctypes.CDLL:
    library = preloaded.loaded(SOURCE)
    library.faulty_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.faulty_disarm.restype = ctypes.c_long
    return library
