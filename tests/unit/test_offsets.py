"""What Spark's checkpoint of several views and the log say of each other before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import CheckpointLost
from headwater.log import Position, Progress, Topic, TopicSpec
from headwater.log.position import AppendNumber
from headwater.log.protocol import Snapshot
from headwater.process.checkpoint import under_way
from headwater.process.keyed.offsets import Entry, SharedCheckpoint, from_offset, leave_behind, taking_part, to_offset
from headwater.process.parked import Parked, park, parked
from headwater.records import schema_of

Batch = dict[str, tuple[int, int]]
"""For each view, from where to where."""


def at(rows: int) -> Position:
    return Position.of({"clicks": {0: rows}}) if rows else Position()


def entries(batch: Batch) -> dict[str, Entry]:
    return {name: Entry(at(start), Snapshot(AppendNumber(1), at(end))) for name, (start, end) in batch.items()}


def plan_batches(query: Path, batches: list[Batch], *, done: int = 0) -> SharedCheckpoint:
    for kind in ("offsets", "commits"):
        (query / "checkpoint" / kind).mkdir(parents=True)
    for number, batch in enumerate(batches):
        text = f"v1\n{{}}\n{json.dumps(to_offset(entries(batch)))}"
        (query / "checkpoint" / "offsets" / str(number)).write_text(text)
    for number in range(done):
        (query / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")
    return SharedCheckpoint(query / "checkpoint", "p")


@pytest.fixture
def log(log: hw.Log) -> hw.Log:
    clicks = Topic(log, log.create(TopicSpec("clicks", schema_of({"n": "int64"}), partitions=1)))
    clicks.append([{"n": n} for n in range(60)])
    return log


def append(log: hw.Log, batches: dict[int, tuple[int, int]]) -> None:
    producer = log.begin("p")
    for number, (start, end) in batches.items():
        log.append([], producer=producer, sequence=number, progress=Progress(at(start), at(end)))


def test_offsets_survive_json() -> None:
    told = entries({"p": (10, 20), "q": (0, 20)})
    assert from_offset(json.loads(json.dumps(to_offset(told)))) == told


def test_a_view_takes_part_if_its_entry_changed() -> None:
    before, after = entries({"p": (0, 10), "q": (0, 10)}), entries({"p": (0, 10), "q": (10, 20), "r": (0, 20)})
    assert sorted(taking_part(before, after)) == ["q", "r"]
    assert taking_part(after, after) == {}


@pytest.mark.parametrize(
    ("planned", "done", "appended"),
    [
        ([], 0, {}),
        ([{"q": (0, 10)}], 1, {}),  # it joins
        ([{"p": (0, 10)}], 0, {}),
        ([{"p": (0, 10)}], 0, {0: (0, 10)}),
        ([{"p": (0, 10)}, {"p": (10, 20)}], 1, {0: (0, 10)}),
        ([{"p": (0, 10), "q": (0, 10)}, {"p": (0, 10), "q": (10, 20)}], 2, {0: (0, 10)}),  # nothing to read for it
    ],
    ids=repr,
)
def test_a_checkpoint_that_goes_with_the_log_is_fine(
    log: hw.Log, tmp_path: Path, planned: list[Batch], done: int, appended: dict[int, tuple[int, int]]
) -> None:
    append(log, appended)
    plan_batches(tmp_path, planned, done=done).verify(log)


@pytest.mark.parametrize(
    ("planned", "done", "appended"),
    [
        ([], 0, {0: (0, 10)}),  # it is gone
        ([{"q": (0, 10)}], 1, {0: (0, 10)}),
        ([{"p": (0, 10)}], 1, {0: (0, 10), 1: (10, 20)}),  # it was cut back, or batches ran without Spark
        ([{"p": (0, 10)}, {"p": (10, 20)}], 1, {0: (0, 10), 1: (10, 20), 2: (20, 30)}),
    ],
    ids=repr,
)
def test_a_checkpoint_that_lags_behind_does_no_harm(
    log: hw.Log, tmp_path: Path, planned: list[Batch], done: int, appended: dict[int, tuple[int, int]]
) -> None:
    append(log, appended)
    checkpoint = plan_batches(tmp_path, planned, done=done)
    checkpoint.verify(log)
    assert checkpoint.begins(log).position == at(appended[max(appended)][1])


@pytest.mark.parametrize(
    ("planned", "done", "appended", "told"),
    [
        ([{"p": (0, 20)}], 0, {0: (0, 10)}, "batch 0 does not begin where the log's last batch ended"),
        ([{"p": (0, 20)}, {"p": (20, 30)}], 1, {0: (0, 10)}, "batch 1 does not begin where the log's last batch"),
        ([{"p": (0, 10)}], 1, {}, "it says that a batch up to clicks:0=10 is done, which the log does not have"),
        ([{"p": (0, 10)}, {"p": (10, 20)}], 2, {0: (0, 10)}, "up to clicks:0=20 is done, which the log does not"),
        ([{"p": (0, 20)}, {"p": (0, 20), "q": (0, 9)}], 2, {0: (0, 10)}, "up to clicks:0=20 is done, which the log"),
        ([{"p": (0, 70)}], 0, {}, "batch 0 reads up to clicks:0=70, the log ends at clicks:0=60"),
    ],
    ids=repr,
)
def test_a_log_that_was_restored_is_noticed(
    log: hw.Log, tmp_path: Path, planned: list[Batch], done: int, appended: dict[int, tuple[int, int]], told: str
) -> None:
    append(log, appended)
    with pytest.raises(CheckpointLost) as caught:
        plan_batches(tmp_path, planned, done=done).verify(log)
    assert told in str(caught.value)


def test_a_view_that_was_parked_goes_on_where_it_was(log: hw.Log, tmp_path: Path) -> None:
    append(log, {0: (0, 10)})
    checkpoint = plan_batches(tmp_path, [{"p": (0, 10)}, {"p": (10, 20)}], done=1)
    planned = under_way(checkpoint)
    assert planned == (1, Progress(at(10), at(20)))
    park(tmp_path, "p", planned[1], "it failed")
    (tmp_path / "checkpoint" / "commits" / "1").write_text("v1\n{}")  # the others went on
    checkpoint.verify(log)
    assert checkpoint.begins(log).position == at(10)
    park(tmp_path, "p", Progress(at(0), at(10)), "in an earlier batch, which says nothing of this one")
    with pytest.raises(CheckpointLost):
        checkpoint.verify(log)


def test_who_is_not_in_the_code_any_more_is_left_behind_by_a_batch_that_runs_again(tmp_path: Path) -> None:
    plan_batches(tmp_path, [{"p": (0, 10), "q": (0, 10)}, {"p": (10, 20), "q": (0, 10)}], done=1)
    leave_behind(tmp_path / "checkpoint", {"q"})
    assert parked(tmp_path, "p") == Parked(Progress(at(10), at(20)))
    assert parked(tmp_path, "q") is None
    leave_behind(tmp_path / "checkpoint", {"p", "q"})
    assert parked(tmp_path, "p") is None, "it is in time again"


def test_a_view_whose_batch_runs_again_without_it_goes_on_from_its_append(log: hw.Log, tmp_path: Path) -> None:
    """Its state goes with its append, not with the batch."""
    append(log, {0: (0, 10), 1: (10, 20)})
    checkpoint = plan_batches(tmp_path, [{"p": (0, 10)}, {"p": (10, 20), "q": (0, 20)}], done=1)
    leave_behind(tmp_path / "checkpoint", {"q"})
    checkpoint.verify(log)
    (tmp_path / "checkpoint" / "commits" / "1").write_text("v1\n{}")
    checkpoint.verify(log)
    assert checkpoint.begins(log).position == at(20)


def test_a_torn_offset_file_is_noticed(log: hw.Log, tmp_path: Path) -> None:
    checkpoint = plan_batches(tmp_path, [{"p": (0, 10)}])
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1\n{}")
    with pytest.raises(CheckpointLost, match="cannot be read"):
        checkpoint.verify(log)
