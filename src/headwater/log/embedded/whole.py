"""A folder that is whole or not there: written under another name, made durable, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import BackupFailed, TargetNotEmpty


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Gives FOLDER.part, empty, to be filled with durable files; renamed to FOLDER at the end, removed on an exception.

    What a killed process left under that name is cleared away; what a running one is writing there is not touched.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TargetNotEmpty(folder=str(folder))
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupFailed(
                folder=str(folder), why=f"another process is writing {part}", do="Wait for it, or name another folder"
            ) from None
        _clear(part)
        try:
            yield part
            os.fsync(held)
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        _sync(folder.parent)
    finally:
        os.close(held)


def _clear(part: Path) -> None:
    for entry in part.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
