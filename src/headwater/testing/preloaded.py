"""Small C libraries that stand between a process and the kernel, so that SQLite's files are covered as ours are.

They are compiled on first use and preloaded into a child process; inside of the child they are spoken to by `ctypes`.
Given several, an act passes through them in that order.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def can_build() -> bool:
    return shutil.which("cc") is not None


def environment(*sources: Path) -> dict[str, str]:
    """For a child process that is to run with them."""
    return {**os.environ, "LD_PRELOAD": ":".join(str(_built(source)) for source in sources)}


def loaded(source: Path) -> ctypes.CDLL:
    """Inside of the child: the library as it was preloaded."""
    return ctypes.CDLL(str(_built(source)))


def _built(source: Path) -> Path:
    digest = hashlib.blake2b(source.read_bytes(), digest_size=8).hexdigest()
    name = f"headwater-{source.stem.replace('_', '-')}-{os.getuid()}-{digest}.so"
    built = Path(tempfile.gettempdir()) / name
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(part), str(source), "-ldl"], check=True)
        os.replace(part, built)
    return built
