"""A backup takes checkpoints and stores along, as far as they go with the log in it; what does not is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import derived
from headwater.derived import DerivedFiles
from headwater.errors import BadBackup, CheckpointLost
from headwater.log import Position, Progress, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.backup import backup, restore
from headwater.log.embedded.manifest import Manifest
from headwater.log.position import AppendNumber
from headwater.log.protocol import Snapshot
from headwater.process.checkpoint import Checkpoint, to_offset
from headwater.process.hold import held, holding
from headwater.records import schema_of
from headwater.serve.follower import Follower
from headwater.serve.store import NOTHING
from headwater.serve.stores.sqlite import SqliteStore

CLICKS = TopicSpec("clicks", schema_of({"n": "int64"}), partitions=1)
DOUBLED = TopicSpec("doubled", schema_of({"n": "int64", "twice": "int64"}), key=("n",), kind="table", partitions=1)
PLAN = "f00d"
NOWHERE = Snapshot(AppendNumber(0), Position())


class House:
    """An app's data folder without Spark: a pipeline of which each step of docs/guarantees.md can be made alone."""

    def __init__(self, folder: Path) -> None:
        self.log = EmbeddedLog(folder)
        self.clicks = Topic(self.log, self.log.create(CLICKS))
        self.output = Topic(self.log, self.log.create(DOUBLED))
        self.checkpoint = Checkpoint(folder / "pipelines" / "doubled" / PLAN / "checkpoint", f"doubled@{PLAN}")
        self.producer = self.log.begin(f"doubled@{PLAN}")
        self.store = SqliteStore(folder / "stores" / f"doubled@{PLAN}.db", DOUBLED.schema, DOUBLED.key)
        self.follower = Follower(self.log, "doubled", self.producer.name, self.store)

    def close(self) -> None:
        self.store.close()
        self.log.close()

    def click(self, *numbers: int) -> None:
        self.clicks.append([{"n": n} for n in numbers])

    def plan(self) -> int:  # step 1
        self._write("offsets", 0 if (last := self.checkpoint.last_planned()) is None else last + 1, self._newest())
        planned = self.checkpoint.last_planned()
        assert planned is not None
        return planned

    def append(self, batch: int) -> None:  # steps 2 and 3
        progress = self.checkpoint.progress(batch)
        low, high = (at.offset("clicks", 0) for at in (progress.start, progress.end))
        numbers = [n for read in self.log.scan("clicks", 0, low, high) for n in read.column("n").to_pylist()]
        parts = self.output.parts([{"n": n, "twice": 2 * n, "_weight": 1} for n in numbers])
        self.log.append(parts, producer=self.producer, sequence=batch, progress=progress)

    def commit(self, batch: int) -> None:  # step 6, and the state that came before it
        self._write("state/0/0", batch + 1, NOWHERE)
        self._write("commits", batch, NOWHERE)

    def batch(self) -> None:
        number = self.plan()
        self.append(number)
        self.commit(number)

    def follow(self) -> None:  # step 7
        mark = self.store.mark()
        while (further := self.follower.step(mark)) is not None:
            mark = further

    def _newest(self) -> Snapshot:
        return self.log.snapshot(["clicks"])

    def _write(self, kind: str, number: int, snapshot: Snapshot) -> None:
        folder = self.checkpoint.folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".{number}.tmp").write_text(f"v1\n{{}}\n{json.dumps(to_offset(snapshot))}")
        (folder / f".{number}.tmp").rename(folder / str(number))

    def backup(self, to: Path, *, at: Position | None = None) -> Manifest:
        return backup(self.log, to, at=at, along=DerivedFiles(quiet_s=0.2, settled_s=0))

    def rows(self) -> list[int]:
        return sorted(self.store.read()[0].column("twice").to_pylist())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Callable[[], House]]:
    opened: list[House] = []

    def restored() -> House:
        restore(tmp_path / "backup", tmp_path / "again")
        opened.append(House(tmp_path / "again"))
        return opened[0]

    yield restored
    for each in opened:
        each.close()


def goes_on(again: House, *expected: int) -> None:
    """The restored pipeline and store take what comes, each once."""
    again.checkpoint.verify(again.log)
    last = again.checkpoint.last_planned()
    if last is not None and last != again.checkpoint.last_done():  # as Spark does: the last planned batch runs again
        again.append(last)
        again.commit(last)
    again.click(50, 51)
    again.batch()
    again.follow()
    assert again.rows() == sorted(2 * n for n in (*expected, 50, 51))


def test_checkpoint_and_store_come_back_with_the_log_and_go_on(
    house: House, tmp_path: Path, restored: Callable[[], House]
) -> None:
    house.click(1, 2)
    house.batch()
    house.click(3)
    house.batch()
    house.follow()
    made = house.backup(tmp_path / "backup")
    assert made.left_out == ()
    assert {name.split("/")[0] for name in made.files} == {"pipelines", "stores"}
    again = restored()
    assert again.store.mark() == house.store.mark()
    goes_on(again, 1, 2, 3)


@pytest.mark.parametrize("crashed_after", ["plan", "append"])
def test_a_batch_that_a_crash_cut_short_runs_again_after_a_restore(
    house: House, tmp_path: Path, restored: Callable[[], House], crashed_after: str
) -> None:
    house.click(1)
    house.batch()
    house.click(2)
    number = house.plan()
    if crashed_after == "append":
        house.append(number)
    assert house.backup(tmp_path / "backup").left_out == ()
    goes_on(restored(), 1, 2)


def test_a_store_behind_the_log_catches_up(house: House, tmp_path: Path, restored: Callable[[], House]) -> None:
    house.click(1)
    house.batch()
    house.follow()
    house.click(2)
    house.batch()
    assert house.backup(tmp_path / "backup").left_out == ()
    goes_on(restored(), 1, 2)


def test_at_an_earlier_position_what_is_ahead_of_it_is_left_out_and_named(
    house: House, tmp_path: Path, restored: Callable[[], House]
) -> None:
    house.click(1)
    house.batch()
    before = house.log.snapshot(["clicks", "doubled"]).position
    house.click(2)
    house.batch()
    house.follow()
    made = house.backup(tmp_path / "backup", at=before)
    told = [str(each) for each in made.left_out]
    assert [text.split(" is not in it: ")[0] for text in told] == [
        "the checkpoint of view 'doubled'",
        "the store of view 'doubled'",
    ]
    assert "it stands at batch 1, the log at 0" in told[0] or "is done, which the log does not have" in told[0]
    assert told[0].endswith("After a restore this view must be built again from the log.")
    assert "it stands at doubled:0=2, the log in the backup ends at doubled:0=1" in told[1]
    assert made.files == {}
    again = restored()
    assert again.store.mark() == NOTHING
    again.follow()
    assert again.rows() == [2]  # built again from the view's topic
    with pytest.raises(CheckpointLost, match="it is gone, the log has batch 0"):
        again.checkpoint.verify(again.log)


def test_a_store_whose_place_was_compacted_away_is_left_out(house: House, tmp_path: Path) -> None:
    house.click(1)
    house.batch()
    house.follow()
    house.click(2)
    house.batch()
    house.output.append([{"n": 1, "twice": 2, "_weight": -1}])
    assert house.log.upkeep.compact("doubled") == {0: 3}
    (left_out,) = house.backup(tmp_path / "backup").left_out
    assert "it stands at offset 1 of partition 0, which has since been compacted" in str(left_out)


def test_a_damaged_store_is_left_out(house: House, tmp_path: Path) -> None:
    house.store.close()
    for path in house.store.path.parent.iterdir():
        path.write_bytes(b"not a database at all, " * 100)
    (left_out,) = house.backup(tmp_path / "backup").left_out
    assert left_out.what == "the store of view 'doubled'"
    assert not (tmp_path / "backup" / "stores" / house.store.path.name).exists()


def test_a_pipeline_that_runs_all_the_time_is_held_between_two_batches(
    house: House, tmp_path: Path, restored: Callable[[], House]
) -> None:
    """Clicks and batches go on in threads; every backup has a checkpoint that goes with its log."""
    stop, running = threading.Event(), threading.Event()
    other = EmbeddedLog(house.log.root)

    def click() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            Topic(other, CLICKS).append([{"n": 1000 + number}])

    def batches() -> None:
        while not stop.is_set():
            if not held(house.log.root / "pipelines"):
                house.batch()
                running.set()

    threads = [threading.Thread(target=target) for target in (click, batches)]
    for thread in threads:
        thread.start()
    try:
        assert running.wait(30)
        made = backup(house.log, tmp_path / "backup", along=DerivedFiles(settled_s=0.3))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        other.close()
    assert made.left_out == ()
    again = restored()
    numbers = again.clicks.read().column("n").to_pylist()
    again.batch()  # what came during the hold
    goes_on(again, *numbers)


def test_a_checkpoint_that_never_stands_still_is_left_out(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.click(1)
    house.batch()
    copy = derived._copy_files

    def copy_while_it_changes(*given: Any) -> None:
        copy(*given)
        house.click(2)
        house.batch()

    monkeypatch.setattr(derived, "_copy_files", copy_while_it_changes)
    (left_out,) = house.backup(tmp_path / "backup").left_out
    assert "it changed 3 times while it was copied" in str(left_out)
    assert not list((tmp_path / "backup").rglob("checkpoint"))


def test_a_hold_ends_with_whoever_holds(tmp_path: Path) -> None:
    assert not held(tmp_path)
    with holding(tmp_path):
        assert held(tmp_path)
        with holding(tmp_path):
            assert held(tmp_path)
    assert not held(tmp_path)


@pytest.mark.parametrize("how", ["changed", "missing", "elsewhere"])
def test_a_damaged_copy_of_what_is_derived_is_refused(house: House, tmp_path: Path, how: str) -> None:
    house.click(1)
    house.batch()
    made = house.backup(tmp_path / "backup")
    name = next(name for name in made.files if "/commits/" in name)
    file, manifest = tmp_path / "backup" / name, tmp_path / "backup" / "backup.json"
    if how == "changed":
        file.write_text("v2")
    elif how == "missing":
        file.unlink()
    else:
        told = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**told, "files": {"stores/../../outside": 1}}))
    with pytest.raises(BadBackup):
        restore(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_backup_of_before_there_were_any_is_still_restored(house: House, tmp_path: Path) -> None:
    backup(house.log, tmp_path / "backup")
    manifest = tmp_path / "backup" / "backup.json"
    told = json.loads(manifest.read_text())
    manifest.write_text(
        json.dumps({name: told[name] for name in told if name not in ("files", "left_out")} | {"format": 1})
    )
    assert restore(tmp_path / "backup", tmp_path / "again").files == {}


def test_what_rests_beside_a_checkpoint_comes_along_but_no_cache(
    house: House, tmp_path: Path, restored: Callable[[], House]
) -> None:
    house.click(1)
    house.batch()
    folder = house.checkpoint.folder.parent
    (folder / "skips.json").write_text("[3]")
    (folder / "cache").mkdir()
    (folder / "cache" / "chunk").write_text("made again")
    assert house.backup(tmp_path / "backup").left_out == ()
    again = restored().checkpoint.folder.parent
    assert (again / "skips.json").read_text() == "[3]"
    assert not (again / "cache").exists()


def test_the_store_of_a_later_version_is_judged_by_that_versions_topic(house: House, tmp_path: Path) -> None:
    later = TopicSpec("doubled.v2", DOUBLED.schema, key=DOUBLED.key, kind="table", partitions=1)
    topic = Topic(house.log, house.log.create(later))
    producer = house.log.begin(f"doubled@{PLAN}.v2")
    parts = topic.parts([{"n": 1, "twice": 2, "_weight": 1}])
    house.log.append(parts, producer=producer, sequence=0, progress=Progress(Position(), Position()))
    store = SqliteStore(house.log.root / "stores" / f"{producer.name}.db", DOUBLED.schema, DOUBLED.key)
    Follower(house.log, "doubled.v2", producer.name, store).step(store.mark())
    assert store.mark() != NOTHING
    store.close()
    made = house.backup(tmp_path / "backup")
    assert made.left_out == ()
    assert f"stores/{producer.name}.db" in made.files


def test_an_empty_file_is_a_file_too(house: House, tmp_path: Path, restored: Callable[[], House]) -> None:
    house.click(1)
    house.batch()
    (house.checkpoint.folder / "metadata").write_bytes(b"")
    assert house.backup(tmp_path / "backup").left_out == ()
    assert (restored().checkpoint.folder / "metadata").read_bytes() == b""


def test_the_progress_of_the_fake_pipeline_is_that_of_a_real_one(house: House) -> None:
    house.click(1, 2)
    house.batch()
    covered = house.log.covered(house.producer.name)
    assert covered is not None
    assert covered.progress == Progress(Position(), Position.of({"clicks": {0: 2}}))
