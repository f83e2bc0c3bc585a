"""The only file that writes to the chunk folders, so that a test can put a faulty disk in its place."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.errors import StorageFailed


class Disk:
    def write(self, path: Path, data: memoryview) -> None:
        """Make a new file with this content, durable together with its name before this returns.

        A failed fsync is never retried: what the kernel then holds is unknown.
        """
        try:
            folder_is_new = not path.parent.is_dir()
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb", buffering=0) as file:
                left = data
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            self._sync_folder(path.parent)
            if folder_is_new:
                self._sync_folder(path.parent.parent)
        except OSError as error:
            raise StorageFailed(act="writing", file=str(path), why=error.strerror or str(error)) from error

    @staticmethod
    def _sync_folder(path: Path) -> None:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
