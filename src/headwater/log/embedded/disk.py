"""The only file that touches chunk files, so that a test can put a faulty disk in its place.

Names are relative to the log's folder, or whole URLs (`file:///mnt/cold/...`, `s3://...`) of archived chunks, which go
through fsspec.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from headwater.errors import Corrupt, StorageFailed


class Disk:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, data: pa.Buffer) -> None:
        """Make a new file with this content, durable together with its name before this returns.

        A failed fsync is never retried: what the kernel then holds is unknown.
        """
        if "://" in name:
            self._write_remote(name, data)
            return
        path = self.root / name
        try:
            folder_is_new = not path.parent.is_dir()
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb", buffering=0) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                self.sync(file.fileno())
            self.sync_path(path.parent)
            if folder_is_new:
                self.sync_path(path.parent.parent)
        except OSError as error:
            raise StorageFailed(act="writing", file=str(path), why=error.strerror or str(error)) from error

    def read(self, name: str) -> pa.Buffer:
        """The content: memory-mapped if it is on local disk."""
        try:
            if "://" in name:
                import fsspec

                with fsspec.open(name, "rb") as remote:
                    return pa.py_buffer(remote.read())
            return pa.memory_map(str(self.root / name)).read_buffer()
        except FileNotFoundError:
            raise Corrupt(what="the chunk (its file is missing)", file=name) from None
        except OSError as error:
            raise StorageFailed(act="reading", file=name, why=error.strerror or str(error)) from error

    def exists(self, name: str) -> bool:
        if "://" in name:
            import fsspec

            filesystem, path = fsspec.core.url_to_fs(name)
            return bool(filesystem.exists(path))
        return (self.root / name).exists()

    def remove(self, name: str) -> None:
        """Remove a file that is no longer listed; one that is gone already is fine."""
        try:
            if "://" in name:
                import fsspec

                filesystem, path = fsspec.core.url_to_fs(name)
                if filesystem.exists(path):
                    filesystem.rm(path)
            else:
                (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageFailed(act="removing", file=name, why=error.strerror or str(error)) from error

    def sync(self, file: int) -> None:
        os.fsync(file)

    def sync_path(self, path: Path) -> None:
        """A file's content, or the names in a folder."""
        opened = os.open(path, os.O_RDONLY)
        try:
            self.sync(opened)
        finally:
            os.close(opened)

    def _write_remote(self, name: str, data: pa.Buffer) -> None:
        """An archive is read back before anything refers to it: what fsspec makes durable is not ours to say."""
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(name)
            filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            filesystem.pipe_file(path, memoryview(data).tobytes())
        except OSError as error:
            raise StorageFailed(act="writing", file=name, why=error.strerror or str(error)) from error
        if self.read(name) != data:
            raise StorageFailed(act="writing", file=name, why="what was read back is not what was written")
