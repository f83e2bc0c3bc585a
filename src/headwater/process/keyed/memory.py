"""An operator's state in a dictionary: operators as pure functions, without Spark; and the planner's empty state."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa

from headwater.process.keyed.arrangement import Arrangement, ChunkRef, Shape
from headwater.process.keyed.chunk import Chunk, checksum


class MemoryState:
    """Copy it (`copy()`) to run a batch twice on the same earlier state, as Spark does after a crash.

    States that share their `data` never drop a chunk, which may be another one's, too.
    """

    def __init__(self, data: dict[str, pa.Buffer] | None = None) -> None:
        self._shared = data is not None
        self.data: dict[str, pa.Buffer] = {} if data is None else data
        self.arrangements: dict[str, Arrangement] = {}

    def arrangement(self, name: str, shape: Shape) -> Arrangement:
        return self.arrangements.setdefault(name, Arrangement(shape, self))

    def held(self) -> dict[str, str]:
        """Each arrangement's manifest with the checksums of chunks in the place of their names: the same for two tries
        of the same steps."""
        told = {}
        for name, each in self.arrangements.items():
            told[name] = json.dumps(each.manifest.to_json())
            for ref in each.manifest.refs:
                told[name] = told[name].replace(ref.id, ref.checksum)
        return told

    def copy(self) -> MemoryState:
        other = MemoryState(self.data) if self._shared else MemoryState()
        other.data |= self.data
        other.arrangements = {
            name: Arrangement(each.shape, other, each.manifest) for name, each in self.arrangements.items()
        }
        return other

    def load(self, ref: ChunkRef) -> Chunk:
        return Chunk.of(self.data[ref.id])

    def save(self, data: pa.Buffer, chunk: Chunk) -> str:
        id = uuid.uuid4().hex + checksum(data)
        self.data[id] = data
        return id

    def drop(self, ref: ChunkRef) -> None:
        mine = (each.manifest.ids for each in self.arrangements.values())
        if not self._shared and not any(ref.id in ids for ids in mine):  # equal content is one chunk
            self.data.pop(ref.id, None)
