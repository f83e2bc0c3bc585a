"""What Spark's checkpoint and the log say of each other before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import CheckpointLost
from headwater.log import Position, Progress, Topic, TopicSpec
from headwater.log.position import AppendNumber
from headwater.log.protocol import Snapshot
from headwater.process.checkpoint import Checkpoint, from_offset, to_offset
from headwater.records import schema_of


def at(number: int) -> Snapshot:
    return Snapshot(AppendNumber(number), Position.of({"clicks": {0: 10 * number}}))


def plan_batches(folder: Path, ends: list[int], *, done: int = 0) -> Checkpoint:
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
    for batch, end in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(to_offset(at(end)))}")
    for batch in range(done):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return Checkpoint(folder, "p")


def append_batches(log: hw.Log, ends: list[int]) -> None:
    producer = log.begin("p")
    starts = [Position(), *(at(end).position for end in ends)]
    for batch, end in enumerate(ends):
        log.append([], producer=producer, sequence=batch, progress=Progress(starts[batch], at(end).position))


@pytest.fixture
def log(log: hw.Log) -> hw.Log:
    """With 60 records to read: where append 6 ended."""
    clicks = Topic(log, log.create(TopicSpec("clicks", schema_of({"n": "int64"}), partitions=1)))
    clicks.append([{"n": n} for n in range(60)])
    return log


def test_offsets_survive_json() -> None:
    assert from_offset(json.loads(json.dumps(to_offset(at(7))))) == at(7)


@pytest.mark.parametrize(
    ("planned", "appended"), [([], []), ([1], []), ([1, 2], [1, 2]), ([1, 2, 3], [1, 2])], ids=repr
)
def test_a_checkpoint_that_goes_with_the_log_is_fine(
    log: hw.Log, tmp_path: Path, planned: list[int], appended: list[int]
) -> None:
    append_batches(log, appended)
    plan_batches(tmp_path / "c", planned).verify(log)


@pytest.mark.parametrize(
    ("planned", "appended", "told"),
    [
        ([], [1, 2], "it is gone, the log has batch 1"),
        ([1], [1, 2, 3], "it stands at batch 0, the log at 2"),
        ([1, 2, 3], [], "it has batch 2, the log has none"),
        ([1, 5], [1, 2], "batch 1 is for other inputs than the one in the log"),
        ([1, 5, 6], [1, 2], "batch 2 does not begin where the log's last batch ended"),
        ([1, 2, 3, 4], [1, 2], "it stands at batch 3, the log at 1"),
    ],
    ids=repr,
)
def test_a_lost_or_restored_checkpoint_is_noticed(
    log: hw.Log, tmp_path: Path, planned: list[int], appended: list[int], told: str
) -> None:
    append_batches(log, appended)
    with pytest.raises(CheckpointLost) as caught:
        plan_batches(tmp_path / "c", planned).verify(log)
    assert told in str(caught.value)


def test_a_restored_log_that_lacks_what_was_done_or_planned_is_noticed(log: hw.Log, tmp_path: Path) -> None:
    append_batches(log, [1, 2])
    plan_batches(tmp_path / "fine", [1, 2, 3], done=2).verify(log)
    with pytest.raises(CheckpointLost, match="says that batch 2 is done, which the log does not have"):
        plan_batches(tmp_path / "done", [1, 2, 3], done=3).verify(log)
    with pytest.raises(CheckpointLost, match="batch 2 reads up to clicks:0=70, the log ends at clicks:0=60"):
        plan_batches(tmp_path / "ahead", [1, 2, 7], done=2).verify(log)


def test_a_torn_offset_file_is_noticed(log: hw.Log, tmp_path: Path) -> None:
    checkpoint = plan_batches(tmp_path / "c", [1])
    (tmp_path / "c" / "offsets" / "0").write_text("v1\n{}")
    append_batches(log, [1])
    with pytest.raises(CheckpointLost, match="cannot be read"):
        checkpoint.verify(log)
