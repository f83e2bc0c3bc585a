from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.chunkcache import CachedChunks

SHAPE = Shape(pa.schema([("k", pa.int64()), ("_weight", pa.int64())]), ("k",), ("_weight",), compact=True)


class Remembering(dict[str, bytes]):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def get(self, id: str) -> bytes:  # type: ignore[override]
        self.asked += 1
        return self[id]

    def put(self, id: str, data: bytes) -> None:
        self[id] = data

    def remove(self, id: str) -> None:
        del self[id]


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Remembering, Arrangement]:
    state = Remembering()
    arranged = Arrangement(SHAPE, CachedChunks(tmp_path / "cache", state))
    arranged.add(pa.table({"k": list(range(100)), "_weight": [1] * 100}))
    return state, arranged


def test_a_chunk_is_read_from_disk_without_asking_spark(
    filled: tuple[Remembering, Arrangement], tmp_path: Path
) -> None:
    state, arranged = filled
    assert CachedChunks(tmp_path / "cache", state).load(arranged.manifest.runs[0][0]).num_rows == 100
    assert state.asked == 0


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_lost_or_damaged_file_is_fetched_again(
    filled: tuple[Remembering, Arrangement], tmp_path: Path, damage: str
) -> None:
    state, arranged = filled
    ref = arranged.manifest.runs[0][0]
    file = tmp_path / "cache" / ref.id
    if damage == "missing":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    chunks = CachedChunks(tmp_path / "cache", state)
    assert chunks.load(ref).num_rows == 100
    assert state.asked == 1
    assert chunks.load(ref).num_rows == 100
    assert state.asked == 1


def test_a_dropped_chunk_leaves_no_file(filled: tuple[Remembering, Arrangement], tmp_path: Path) -> None:
    state, arranged = filled
    CachedChunks(tmp_path / "cache", state).drop(arranged.manifest.runs[0][0])
    assert list((tmp_path / "cache").iterdir()) == []
    assert not state
