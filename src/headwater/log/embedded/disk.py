"""The only file that touches chunk files, so that a test can put a faulty disk in its place.

Names are relative to the log's folder, or whole URLs (`file:///mnt/cold/...`, `s3://...`) of archived chunks, which go
through fsspec.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headwater.errors import Corrupt, StorageFailed

LOCAL = "file://"


class Disk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._durable_folders: set[Path] = set()

    def make_root(self) -> None:
        """Make the log's folder; its name, and those of folders made on the way, are durable before this returns.

        For a log that is yet to begin: nobody may be told that something is safe in a folder that is not.
        """
        made = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in made:
            self.sync_path(folder.parent)
        if not made:  # by whoever made it, perhaps a moment ago; or we may not even look where it is
            with contextlib.suppress(PermissionError):
                self.sync_path(self.root.parent)

    def write(self, name: str, data: pa.Buffer) -> None:
        """Make a new file with this content, durable together with its name before this returns.

        A failed fsync is never retried: what the kernel then holds is unknown. A chunk's name is used once; but two
        processes may archive the same chunk, so there a file gets its name when it is whole.
        """
        if "://" in name and not name.startswith(LOCAL):
            self._write_remote(name, data)
            return
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part") if name.startswith(LOCAL) else path
            with open(new, "xb", buffering=0) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                self.sync(file.fileno())
            if new != path:
                os.rename(new, path)
            self.sync_path(path.parent)
            self._sync_names_of_folders(path.parent)
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

    def sync_removed(self, names: Iterable[str]) -> None:
        """Make durable that these files were removed: after a power cut they do not come back."""
        for folder in {self._path(name).parent for name in names if "://" not in name or name.startswith(LOCAL)}:
            try:
                self.sync_path(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageFailed(act="syncing", file=str(folder), why=error.strerror or str(error)) from error

    def sync(self, file: int) -> None:
        os.fsync(file)

    def _path(self, name: str) -> Path:
        return Path(name.removeprefix(LOCAL)) if name.startswith(LOCAL) else self.root / name

    def _sync_names_of_folders(self, folder: Path) -> None:
        """The names on the way from the root to this folder; once a process, for another may have made them just now
        and be about to sync them."""
        if folder not in self._durable_folders:
            for above in folder.parents:
                self.sync_path(above)
                if above == self.root or os.path.ismount(above):
                    break
            self._durable_folders.add(folder)

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
