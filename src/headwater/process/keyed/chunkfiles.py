"""Chunks of state as files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from headwater.log.recent import Recent
from headwater.process.keyed.chunk import ChunkRef, is_of


class DamagedChunk(Exception):
    """A file that is missing, or does not hold what was written."""

    def __init__(self, path: Path, how: str) -> None:
        super().__init__(f"state in {path} is {how}: build the view again from the log (headwater view rebuild)")


class ChunkFiles:
    """In `folder`, memory-mapped; what one holds is checked when a process first maps it. Not synced: see `keeping`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, ref: ChunkRef) -> pa.Table:
        path = self._folder / ref.id
        table = _MAPPED.get(path)
        if table is None:
            try:
                content = pa.memory_map(str(path)).read_buffer()
            except FileNotFoundError:
                raise DamagedChunk(path, "missing") from None
            if not _VERIFIED.get(path) and not is_of(content, ref):
                raise DamagedChunk(path, "damaged")
            _VERIFIED.put(path, True)
            table = ipc.open_file(content).read_all()
            _MAPPED.put(path, table, content.size)
        return table

    def save(self, ref: ChunkRef, data: pa.Buffer) -> None:
        path = self._folder / ref.id
        try:
            path.write_bytes(data)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def remove(self, ids: Iterable[str]) -> None:
        for id in ids:
            path = self._folder / id
            _MAPPED.forget(path)
            path.unlink(missing_ok=True)

    def lacking(self, refs: Iterable[ChunkRef]) -> str | None:
        """The first of them that has no file of its size."""
        return next((ref.id for ref in refs if not _is_whole(self._folder / ref.id, ref.bytes)), None)

    def others(self, ids: set[str]) -> list[str]:
        """What is in the folder besides these."""
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return [name for name in names if name not in ids]


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


_MAPPED: Recent[pa.Table] = Recent(most=1024, most_bytes=256 * 1024 * 1024)
"""Buckets move between processes, so that one may map what another has removed: until newer chunks take its place."""
_VERIFIED: Recent[bool] = Recent(most=16 * 1024)
"""State that is too large to be kept mapped is still not read through in every batch."""
