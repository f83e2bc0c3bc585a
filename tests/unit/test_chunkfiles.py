from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.process.keyed.arrangement import HASH, Arrangement, Shape
from headwater.process.keyed.chunk import ChunkRef, write_run
from headwater.process.keyed.chunkfiles import LARGE, ChunkFiles, DamagedChunk, forget_mapped
from headwater.process.keyed.pending import PendingChunks

SHAPE = Shape(pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ("k",), ("_weight",), compact=True)


@pytest.fixture
def ref(tmp_path: Path) -> ChunkRef:
    pending = PendingChunks(ChunkFiles(tmp_path))
    arranged = Arrangement(SHAPE, pending)
    arranged.add(pa.table({"k": list(range(100)), "_weight": [1] * 100}))
    pending.settle()
    forget_mapped()
    return arranged.manifest.runs[0][0]


def test_a_chunk_is_read_again_as_it_was_written(ref: ChunkRef, tmp_path: Path) -> None:
    assert ChunkFiles(tmp_path).load(ref).rows["k"].to_pylist() != []
    assert ChunkFiles(tmp_path).lacking([ref]) is None
    ChunkFiles(tmp_path).keep_only({ref.id})
    assert ChunkFiles(tmp_path).lacking([ref]) is None


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_lost_or_damaged_file_is_never_served(ref: ChunkRef, tmp_path: Path, damage: str) -> None:
    (file,) = tmp_path.iterdir()
    if damage == "missing":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedChunk, match=f"{file.name} is (missing|damaged): build the view again"):
        ChunkFiles(tmp_path).load(ref)
    assert ChunkFiles(tmp_path).lacking([ref]) == (None if damage == "flipped" else ref.id)


def test_a_removed_chunk_leaves_no_file(ref: ChunkRef, tmp_path: Path) -> None:
    ChunkFiles(tmp_path).remove([ref.id], but=set())
    assert list(tmp_path.iterdir()) == []


def test_small_chunks_that_are_written_together_share_a_file_that_stays_as_long_as_one_of_them(tmp_path: Path) -> None:
    files = ChunkFiles(tmp_path)
    pending = PendingChunks(files)
    few, many = (pa.table({HASH: np.arange(rows, dtype=np.uint64)}) for rows in (100, LARGE // 8))
    (one,), (gone,), (other,), (large,) = (write_run(rows, pending) for rows in (few, few, few, many))
    pending.drop(gone)
    pending.settle()
    assert len(list(tmp_path.iterdir())) == 2
    for forgotten in (False, True):
        if forgotten:
            forget_mapped()
        for ref, rows in ((one, few), (other, few), (large, many)):
            assert files.load(ref).rows == rows
    files.remove([one.id], but={other.id, large.id})
    assert files.lacking([other, large]) is None
    files.remove([one.id, other.id], but={large.id})
    assert [file.name for file in tmp_path.iterdir()] == [large.id]
    files.keep_only(set())
    assert list(tmp_path.iterdir()) == []


def test_chunks_of_older_versions_are_files_by_their_id(ref: ChunkRef, tmp_path: Path) -> None:
    (file,) = tmp_path.iterdir()
    old = replace(ref, id="5" * 32 + ref.checksum)
    file.rename(tmp_path / old.id)
    assert ChunkFiles(tmp_path).lacking([old]) is None
    assert ChunkFiles(tmp_path).load(old).rows.num_rows == 100
