"""What one step writes, held back until the step is over."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa
from pyarrow import ipc

from headwater.process.keyed.chunk import ChunkRef
from headwater.process.keyed.chunkfiles import ChunkFiles


class PendingChunks:
    """Chunks in front of their files: one that a step adds and merges away again is never written.

    Nothing is removed here: until the batch is appended, all that it began with is needed to run it again.
    """

    def __init__(self, files: ChunkFiles) -> None:
        self._files = files
        self._saved: dict[str, tuple[ChunkRef, bytes]] = {}

    def load(self, ref: ChunkRef) -> pa.Table:
        saved = self._saved.get(ref.id)
        return ipc.open_file(saved[1]).read_all() if saved else self._files.load(ref)

    def save(self, ref: ChunkRef, data: bytes) -> None:
        self._saved[ref.id] = ref, data

    def drop(self, ref: ChunkRef) -> None:
        """Two arrangements may share a chunk, for equal content is one: what is in use in the end is said there."""

    def settle(self, used: Set[str]) -> None:
        for id, (ref, data) in sorted(self._saved.items()):
            if id in used:
                self._files.save(ref, data)
