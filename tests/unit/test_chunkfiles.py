from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.chunk import ChunkRef
from headwater.process.keyed.chunkfiles import ChunkFiles, DamagedChunk
from headwater.process.keyed.pending import PendingChunks

SHAPE = Shape(pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ("k",), ("_weight",), compact=True)


@pytest.fixture
def ref(tmp_path: Path) -> ChunkRef:
    pending = PendingChunks(ChunkFiles(tmp_path))
    arranged = Arrangement(SHAPE, pending)
    arranged.add(pa.table({"k": list(range(100)), "_weight": [1] * 100}))
    pending.settle()
    return arranged.manifest.runs[0][0]


def test_a_chunk_is_read_again_as_it_was_written(ref: ChunkRef, tmp_path: Path) -> None:
    assert ChunkFiles(tmp_path).load(ref)["k"].to_pylist() != []
    assert ChunkFiles(tmp_path).lacking([ref]) is None
    assert ChunkFiles(tmp_path).others({ref.id}) == []


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_lost_or_damaged_file_is_never_served(ref: ChunkRef, tmp_path: Path, damage: str) -> None:
    file = tmp_path / ref.id
    if damage == "missing":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedChunk, match=f"{ref.id} is (missing|damaged): build the view again"):
        ChunkFiles(tmp_path).load(ref)
    assert ChunkFiles(tmp_path).lacking([ref]) == (None if damage == "flipped" else ref.id)


def test_a_removed_chunk_leaves_no_file(ref: ChunkRef, tmp_path: Path) -> None:
    ChunkFiles(tmp_path).remove([ref.id])
    assert list(tmp_path.iterdir()) == []
