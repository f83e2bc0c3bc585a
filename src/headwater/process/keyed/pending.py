"""What one step writes and drops, held back until the step is over."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa
from pyarrow import ipc

from headwater.process.keyed.chunk import ChunkRef, Chunks


class PendingChunks:
    """Chunks in front of where they are kept.

    A chunk that a step adds and merges away again never travels. And since equal content is one chunk, two arrangements
    of an operator may share it: what one drops is dropped only if no manifest names it any more.
    """

    def __init__(self, home: Chunks) -> None:
        self._home = home
        self._saved: dict[str, tuple[ChunkRef, bytes]] = {}
        self._dropped: dict[str, ChunkRef] = {}

    def load(self, ref: ChunkRef) -> pa.Table:
        saved = self._saved.get(ref.id)
        return ipc.open_file(saved[1]).read_all() if saved else self._home.load(ref)

    def save(self, ref: ChunkRef, data: bytes) -> None:
        self._saved[ref.id] = ref, data

    def drop(self, ref: ChunkRef) -> None:
        self._dropped[ref.id] = ref

    def settle(self, before: Set[str], after: Set[str]) -> None:
        """Save and drop for good: `before` and `after` are the ids in the manifests before and after the step."""
        for id, (ref, data) in sorted(self._saved.items()):
            if id in after and id not in before:
                self._home.save(ref, data)
        for id, ref in sorted(self._dropped.items()):
            if id in before and id not in after:
                self._home.drop(ref)
