"""What one step writes, held back until the step is over."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

from headwater.process.keyed.chunk import ChunkRef
from headwater.process.keyed.chunkfiles import ChunkFiles


class PendingChunks:
    """Chunks in front of their files: one that a step adds and merges away again is never written.

    No file is removed here: until the batch is appended, all that it began with is needed to run it again.
    """

    def __init__(self, files: ChunkFiles) -> None:
        self._files = files
        self._saved: dict[str, tuple[ChunkRef, pa.Buffer]] = {}

    def load(self, ref: ChunkRef) -> pa.Table:
        saved = self._saved.get(ref.id)
        return ipc.open_file(saved[1]).read_all() if saved else self._files.load(ref)

    def save(self, ref: ChunkRef, data: pa.Buffer) -> None:
        self._saved[ref.id] = ref, data

    def drop(self, ref: ChunkRef) -> None:
        self._saved.pop(ref.id, None)

    def settle(self) -> None:
        for ref, data in self._saved.values():
            self._files.save(ref, data)
        self._saved.clear()
