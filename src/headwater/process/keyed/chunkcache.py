"""Chunks of state as files on local disk, in front of Spark's state."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import ipc

from headwater.log.recent import Recent
from headwater.process.keyed.chunk import ChunkRef, digest

_CODEC = pa.Codec("zstd", compression_level=1)


class Remembered(Protocol):
    """What we need of Spark's MapState: the durable, exactly-once home of the chunks."""

    def get(self, id: str) -> bytes: ...

    def put(self, id: str, data: bytes) -> None: ...

    def remove(self, id: str) -> None: ...


class CachedChunks:
    """Chunks in Spark's state, compressed, with a plain copy of each as a file in `folder`, memory-mapped.

    Compressed, because every byte goes through a socket, the JVM, RocksDB and its changelog: zstd takes a chunk to a
    third of its size in a fifth of the time that the rest of it would take to travel.
    The files are only a cache: one that is missing or damaged is fetched again, and since a chunk is named by the
    digest of its content, which is checked when a process first maps it, a file can never be stale.
    """

    def __init__(self, folder: Path, remembered: Remembered) -> None:
        self._folder = folder
        self._remembered = remembered

    def load(self, ref: ChunkRef) -> pa.Table:
        path = self._folder / ref.id
        try:
            return _mapped(path)
        except (FileNotFoundError, DamagedCacheFile):
            self._write(path, _decompressed(self._remembered.get(ref.id), ref))
            return _mapped(path)

    def save(self, ref: ChunkRef, data: bytes) -> None:
        self._remembered.put(ref.id, _CODEC.compress(data, asbytes=True))
        self._write(self._folder / ref.id, data)

    def drop(self, ref: ChunkRef) -> None:
        self._remembered.remove(ref.id)
        path = self._folder / ref.id
        _MAPPED.forget(path)
        path.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
        part.write_bytes(data)
        os.replace(part, path)


def _decompressed(data: bytes, ref: ChunkRef) -> bytes:
    return bytes(_CODEC.decompress(data, decompressed_size=ref.bytes, asbytes=True))


class DamagedCacheFile(Exception):
    """Internal: the file is not the chunk it is named after."""


_MAPPED: Recent[pa.Table] = Recent(most=1024, most_bytes=256 * 1024 * 1024)
"""Buckets move between processes, so that one may map what another has dropped: until newer chunks take its place."""
_VERIFIED: Recent[bool] = Recent(most=16 * 1024)
"""State that is too large to be kept mapped is still not read through in every batch."""


def _mapped(path: Path) -> pa.Table:
    table = _MAPPED.get(path)
    if table is None:
        content = pa.memory_map(str(path)).read_buffer()
        if not _VERIFIED.get(path) and digest(content) != path.name:
            raise DamagedCacheFile(path)
        _VERIFIED.put(path, True)
        table = ipc.open_file(content).read_all()
        _MAPPED.put(path, table, content.size)
    return table
