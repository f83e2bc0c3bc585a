"""What one step writes, held back until the step is over."""

from __future__ import annotations

import pyarrow as pa

from headwater.process.keyed.chunk import Chunk, ChunkRef
from headwater.process.keyed.chunkfiles import ChunkFiles, Writing


class PendingChunks:
    """Chunks in front of their files: one that a step adds and merges away again is never written.

    No file is removed here: until the batch is appended, all that it began with is needed to run it again.
    """

    def __init__(self, files: ChunkFiles) -> None:
        self._files = files
        self._writing = Writing()
        self._saved: dict[str, pa.Buffer] = {}
        self._chunks: dict[str, Chunk] = {}

    def load(self, ref: ChunkRef) -> Chunk:
        if ref.id not in self._saved:
            return self._files.load(ref)
        if ref.id not in self._chunks:
            self._chunks[ref.id] = Chunk.of(self._saved[ref.id])
        return self._chunks[ref.id]

    def save(self, data: pa.Buffer) -> str:
        id = self._writing.placed(data)
        self._saved[id] = data
        return id

    def drop(self, ref: ChunkRef) -> None:
        self._saved.pop(ref.id, None)
        self._chunks.pop(ref.id, None)

    def settle(self) -> None:
        self._files.save(self._saved)
        self._saved.clear()
        self._chunks.clear()
        self._writing = Writing()
