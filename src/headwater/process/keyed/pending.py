"""What one step writes, held back until the step is over."""

from __future__ import annotations

import pyarrow as pa

from headwater.process.keyed.chunk import Chunk, ChunkRef
from headwater.process.keyed.chunkfiles import ChunkFiles, Writing, Written


class PendingChunks:
    """Chunks in front of their files: one that a step adds and merges away again is never written.

    No file is removed here: until the batch is appended, all that it began with is needed to run it again.
    """

    def __init__(self, files: ChunkFiles) -> None:
        self._files = files
        self._writing = Writing()
        self._saved: dict[str, Written] = {}

    def load(self, ref: ChunkRef) -> Chunk:
        saved = self._saved.get(ref.id)
        return self._files.load(ref) if saved is None else saved.chunk

    def save(self, data: pa.Buffer, chunk: Chunk) -> str:
        id = self._writing.placed(data)
        self._saved[id] = Written(data, chunk)
        return id

    def drop(self, ref: ChunkRef) -> None:
        self._saved.pop(ref.id, None)

    def settle(self) -> None:
        if self._saved:
            self._files.save(self._saved)
            self._saved = {}
            self._writing = Writing()
