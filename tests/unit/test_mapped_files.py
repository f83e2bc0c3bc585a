"""What a process keeps mapped is bounded, as the kernel tells it in /proc/self/maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, chunks
from headwater.log.recent import Recent
from headwater.process.keyed import chunkfiles
from headwater.process.keyed.arrangement import HASH
from headwater.process.keyed.chunk import Chunk, Run, write_run
from headwater.process.keyed.chunkfiles import ChunkFiles
from headwater.process.keyed.pending import PendingChunks

KIB = 1024
MOST_BYTES = 600 * KIB
MAPS = Path("/proc/self/maps")
pytestmark = pytest.mark.skipif(not MAPS.exists(), reason="only Linux tells what a process has mapped")


def mapped_below(folder: Path) -> list[int]:
    """The sizes of this folder's files that are mapped now, also of those that were removed."""
    ranges = [line.split()[0].split("-") for line in MAPS.read_text().splitlines() if f" {folder}/" in line]
    return [int(end, 16) - int(start, 16) for start, end in ranges]


def is_bounded(sizes: list[int]) -> bool:
    return sum(sizes) <= MOST_BYTES + len(sizes) * 4 * KIB  # the kernel counts whole pages


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedLog]:
    monkeypatch.setattr(chunks, "_mapped", Recent(most=100, most_bytes=MOST_BYTES))
    opened = EmbeddedLog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def numbers(log: EmbeddedLog) -> Topic:
    topic = Topic(log, log.create(TopicSpec("numbers", pa.schema([("n", pa.int64())]), partitions=1)))
    for first in range(0, 200_000, 10_000):
        topic.append(pa.table({"n": range(first, first + 10_000)}))
    return topic


def test_of_chunks_that_were_read_some_stay_mapped(numbers: Topic, tmp_path: Path) -> None:
    for _ in range(2):
        assert numbers.read()["n"].to_pylist() == list(range(200_000))
    sizes = mapped_below(tmp_path / "chunks")
    assert len(sizes) > 1
    assert is_bounded(sizes)


def test_without_a_bound_all_would_stay(numbers: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above would find it out."""
    monkeypatch.setattr(chunks, "_mapped", Recent(most=100, most_bytes=1 << 30))
    numbers.read()
    sizes = mapped_below(tmp_path / "chunks")
    assert len(sizes) == 20
    assert not is_bounded(sizes)


def test_upkeep_keeps_nothing_mapped_that_it_has_replaced(
    log: EmbeddedLog, numbers: Topic, tmp_path: Path, until: Callable[..., None]
) -> None:
    for first in (200_000, 210_000, 220_000):
        numbers.read()
        assert mapped_below(tmp_path / "chunks")
        assert log.upkeep.roll_up("numbers", least_chunks=2)
        until(lambda: not mapped_below(tmp_path / "chunks"))  # Arrow's threads let go of a file in their time
        numbers.append(pa.table({"n": range(first, first + 10_000)}))
    assert numbers.read()["n"].to_pylist() == list(range(230_000))


# --- chunks of state ---


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChunkFiles:
    monkeypatch.setattr(chunkfiles, "_MAPPED", Recent(most=10, most_bytes=MOST_BYTES))
    monkeypatch.setattr(chunkfiles, "_FRESH", Recent(most=0))
    return ChunkFiles(tmp_path)


def run_of(state: ChunkFiles, first: int, rows: int) -> Run:
    pending = PendingChunks(state)
    run = write_run(pa.table({HASH: np.arange(first, first + rows, dtype=np.uint64)}), pending)
    pending.settle()
    return run


def test_a_dropped_chunk_of_state_is_not_mapped_any_more(state: ChunkFiles, tmp_path: Path) -> None:
    (ref,) = run_of(state, 0, 1000)
    assert state.load(ref).rows.num_rows == 1000
    assert len(mapped_below(tmp_path)) == 1
    state.remove([ref.id], but=set())
    assert mapped_below(tmp_path) == []


@pytest.mark.parametrize(("rows", "most"), [(20_000, 3), (1000, 10)])
def test_chunks_of_state_that_another_process_dropped_do_not_pile_up(
    state: ChunkFiles, tmp_path: Path, rows: int, most: int
) -> None:
    runs = [run_of(state, number * rows, rows) for number in range(20)]
    for _ in range(2):
        for number, (ref,) in enumerate(runs):
            assert int(state.load(ref).hashes[0]) == number * rows
    for file in tmp_path.iterdir():
        file.unlink()
    sizes = mapped_below(tmp_path)
    assert 0 < len(sizes) <= most
    assert is_bounded(sizes)


def test_chunks_as_they_were_written_stay_in_memory_for_a_while_only(
    state: ChunkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunkfiles, "_FRESH", fresh := Recent[Chunk](most=3, most_bytes=100_000))
    runs = [run_of(state, number * 1000, 1000) for number in range(20)]
    assert len(fresh) == 3
    state.load(runs[-1][0])
    assert mapped_below(tmp_path) == []
    state.remove([runs[-1][0].id], but=set())
    assert len(fresh) == 2
    assert int(state.load(runs[0][0]).hashes[-1]) == 999


def test_state_too_large_to_stay_mapped_is_verified_once(state: ChunkFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    is_of = chunkfiles.is_of
    monkeypatch.setattr(chunkfiles, "is_of", lambda data, ref: [seen.append(len(data)), is_of(data, ref)][1])
    runs = [run_of(state, number * 20_000, 20_000) for number in range(20)]
    for _ in range(3):
        for (ref,) in runs:
            state.load(ref)
    assert len(seen) == 20
