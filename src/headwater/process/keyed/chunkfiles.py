"""Chunks of state as files.

<folder>/<name>      a large chunk, or several small ones that were written together, each at a multiple of 64 bytes

The id of a chunk says where it is: "<name>.<offset, hex>.<checksum>", or "<name>", which ends with the checksum too, of
one that is a file.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.log.recent import Recent
from headwater.process.keyed.chunk import Chunk, ChunkRef, checksum, is_of

LARGE = 256 * 1024
"""A chunk of so many bytes has a file of its own: its bytes go when it goes, whatever else was written with it."""
_ALIGNED = 64


class DamagedChunk(Exception):
    """A file that is missing, or does not hold what was written."""

    def __init__(self, path: Path, how: str) -> None:
        super().__init__(f"state in {path} is {how}: build the view again from the log (headwater view rebuild)")


@dataclass(frozen=True)
class Written:
    data: pa.Buffer
    chunk: Chunk
    """What that is."""


class Writing:
    """Where chunks will be that are written together: making a file takes longer than filling it."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._end = 0

    def placed(self, data: pa.Buffer) -> str:
        """The id of a chunk with that content."""
        if data.size >= LARGE:
            return uuid.uuid4().hex + checksum(data)
        offset = self._end
        self._end = -(-(offset + data.size) // _ALIGNED) * _ALIGNED
        return f"{self._name}.{offset:x}.{checksum(data)}"


class ChunkFiles:
    """In `folder`, memory-mapped; what one holds is checked when a process first maps it. Not synced: see `keeping`."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def load(self, ref: ChunkRef) -> Chunk:
        key = (self._folder, ref.id)
        chunk = _FRESH.get(key) or _MAPPED.get(key)
        if chunk is None:
            name, offset = _place(ref.id)
            path = Path(self._folder, name)
            try:
                content = pa.memory_map(str(path)).read_buffer().slice(offset, ref.bytes)
            except FileNotFoundError:
                raise DamagedChunk(path, "missing") from None
            except IndexError:  # it ends before
                raise DamagedChunk(path, "damaged") from None
            if not _VERIFIED.get(key) and not is_of(content, ref):
                raise DamagedChunk(path, "damaged")
            _VERIFIED.put(key, True)
            chunk = Chunk.of(content)
            _MAPPED.put(key, chunk, content.size)
        return chunk

    def save(self, chunks: Mapping[str, Written]) -> None:
        """By id. The small ones stay in memory for a while: the next batch is likely to look at them."""
        files: dict[str, list[tuple[int, pa.Buffer]]] = {}
        for id, written in chunks.items():
            name, offset = _place(id)
            files.setdefault(name, []).append((offset, written.data))
        for name, parts in files.items():
            self._write(name, parts)
        for id, written in chunks.items():
            if written.data.size < LARGE:
                _FRESH.put((self._folder, id), written.chunk, written.data.size)

    def _write(self, name: str, parts: list[tuple[int, pa.Buffer]]) -> None:
        path, flags = f"{self._folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(self._folder, exist_ok=True)
            file = os.open(path, flags, 0o666)
        try:
            for offset, data in parts:
                left = memoryview(data)
                while left:
                    written = os.pwrite(file, left, offset)
                    left, offset = left[written:], offset + written  # noqa: PLW2901
        finally:
            os.close(file)

    def remove(self, ids: Iterable[str], *, but: set[str]) -> None:
        """The files of these chunks, unless one of those others is in it."""
        gone, kept = set(ids) - but, {_place(id)[0] for id in but}
        for id in gone:
            _FRESH.forget((self._folder, id))
            _MAPPED.forget((self._folder, id))
        self._unlink({_place(id)[0] for id in gone} - kept)

    def keep_only(self, ids: set[str]) -> None:
        """Remove every file that has none of these chunks."""
        names = set(os.listdir(self._folder)) if os.path.isdir(self._folder) else set()
        self._unlink(names - {_place(id)[0] for id in ids})

    def _unlink(self, names: Iterable[str]) -> None:
        for name in names:
            Path(self._folder, name).unlink(missing_ok=True)

    def lacking(self, refs: Iterable[ChunkRef]) -> str | None:
        """The first of them that is not there, by the size of its file."""
        return next((ref.id for ref in refs if not self._is_there(ref)), None)

    def _is_there(self, ref: ChunkRef) -> bool:
        name, offset = _place(ref.id)
        try:
            return os.stat(f"{self._folder}/{name}").st_size >= offset + ref.bytes
        except FileNotFoundError:
            return False


def forget_mapped() -> None:
    """Let go of all that this process has mapped, and of what it knows of it."""
    for known in (_FRESH, _MAPPED, _VERIFIED):
        known.clear()


def _place(id: str) -> tuple[str, int]:
    """The name of the file, and where in it the chunk begins."""
    name, *rest = id.split(".")
    return name, int(rest[0], 16) if rest else 0


_FRESH: Recent[Chunk] = Recent(most=512, most_bytes=32 * 1024 * 1024)
"""Small chunks as they were written."""
_MAPPED: Recent[Chunk] = Recent(most=4096, most_bytes=1024 * 1024 * 1024)
"""Buckets move between processes, so that one may map what another has removed: until newer chunks take its place.
What is mapped is the kernel's, which takes it back when memory is short."""
_VERIFIED: Recent[bool] = Recent(most=16 * 1024)
"""State that is too large to be kept mapped is still not read through in every batch."""
