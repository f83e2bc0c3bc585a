"""A backup of a log in use is one state of it, whole or not there; restored it says the same."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from headwater.cli import backup as commands
from headwater.errors import (
    BackupFailed,
    BadBackup,
    BadLogUrl,
    BadPartition,
    BadPosition,
    Corrupt,
    StorageFailed,
    TargetNotEmpty,
    TopicNotFound,
)
from headwater.log import Position, Progress, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import backup as backups
from headwater.log.embedded.backup import backup, restore
from headwater.log.embedded.catalog import _checksum_vfs
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.verify import verify
from headwater.log.position import AppendNumber
from headwater.records import schema_of
from headwater.testing.log_contract import CLICKS, USERS, click

MANY = pa.table({"user_id": range(20_000), "page": ["/a/rather/long/page"] * 20_000})
ONE = TopicSpec("one", schema_of({"n": "int64", "at": "timestamp"}), key=("n",), time="at", partitions=1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log")
    clicks, users = Topic(opened, opened.create(CLICKS)), Topic(opened, opened.create(USERS))
    for n in range(20):
        clicks.append([click(n)])
        users.append([{"user_id": n, "name": f"user {n}"}])
    clicks.append(MANY)
    yield opened
    opened.close()


def one(number: int) -> dict[str, Any]:
    return {"n": number, "at": f"2026-01-01T00:00:{number % 60:02d}Z"}


def rows(log: EmbeddedLog, name: str, *, end: Position | None = None) -> pa.Table:
    return Topic(log, log.topic(name)).read(end=end)


def restored(folder: Path, target: Path) -> EmbeddedLog:
    restore(folder, target)
    return EmbeddedLog(target)


# --- the whole log ---


def test_a_restored_backup_is_the_log_with_its_numbers_and_times(log: EmbeddedLog, tmp_path: Path) -> None:
    manifest = backup(log, tmp_path / "backup")
    assert manifest.digest == verify(log.root).digest == verify(tmp_path / "backup").digest
    again = restored(tmp_path / "backup", tmp_path / "again")
    assert verify(again.root).digest == manifest.digest
    for name in ("clicks", "users"):
        assert rows(again, name).equals(rows(log, name))
    assert again.wait(AppendNumber(0), 0) == manifest.append == 41
    Topic(again, again.topic("clicks")).append([click(1)])
    assert verify(again.root).sound
    again.close()


def test_the_manifest_says_what_is_in_it(log: EmbeddedLog, tmp_path: Path) -> None:
    made = backup(log, tmp_path / "backup")
    told = json.loads((tmp_path / "backup" / "backup.json").read_text())
    assert told["position"] == made.position == str(log.snapshot(["clicks", "users"]).position)
    assert (told["format"], told["append"], told["digest"]) == (2, 41, made.digest)
    assert told["made_at"].endswith("+00:00")
    assert sorted(os.listdir(tmp_path / "backup")) == ["backup.json", "catalog.db", "chunks"]


def test_the_copy_of_the_catalog_has_its_page_checksums(log: EmbeddedLog, tmp_path: Path) -> None:
    backup(log, tmp_path / "backup")
    copy = apsw.Connection(str(tmp_path / "backup" / "catalog.db"), vfs=_checksum_vfs())
    assert copy.reserve_bytes("main") == 8
    copy.close()


def test_an_archived_chunk_comes_back_as_a_local_one(log: EmbeddedLog, tmp_path: Path) -> None:
    before = verify(log.root).digest
    log.upkeep.archive("clicks", f"file://{tmp_path}/cold")
    backup(log, tmp_path / "backup")
    again = restored(tmp_path / "backup", tmp_path / "again")
    with again.catalog.read() as catalog:
        files = [str(row[0]) for row in catalog.execute("SELECT file FROM chunks WHERE file NOT NULL")]
    assert len(files) == 4
    assert all(name.startswith("chunks/clicks/") for name in files)
    assert verify(again.root).digest == before
    again.close()


def test_a_backup_while_others_append_is_one_append_boundary(log: EmbeddedLog, tmp_path: Path) -> None:
    stop, begun = threading.Event(), threading.Event()

    def append() -> None:
        clicks, users = Topic(log, CLICKS), Topic(log, USERS)
        number = 100
        while not stop.is_set():
            number += 1
            log.append([*clicks.parts([click(number)]), *users.parts([{"user_id": number, "name": "x"}])])
            begun.set()

    thread = threading.Thread(target=append)
    thread.start()
    try:
        assert begun.wait(30)
        manifests = [backup(log, tmp_path / f"backup{n}") for n in range(3)]
    finally:
        stop.set()
        thread.join()
    for n, manifest in enumerate(manifests):
        again = restored(tmp_path / f"backup{n}", tmp_path / f"again{n}")
        assert rows(again, "clicks").num_rows == rows(again, "users").num_rows + 20_000  # never half an append
        at = Position.parse(manifest.position)
        assert rows(again, "clicks").equals(rows(log, "clicks", end=at))
        number = AppendNumber(manifest.append)
        assert again.position_at("users", number) == log.position_at("users", number)
        again.close()


def test_a_file_swapped_away_and_removed_meanwhile_begins_again(log: EmbeddedLog, tmp_path: Path) -> None:
    swapped: list[int] = []

    class Swapping(Disk):
        def read(self, name: str) -> pa.Buffer:
            if not swapped:
                swapped.append(other.upkeep.roll_up("clicks", least_chunks=2))
                other.upkeep.collect_garbage(grace_s=-1)
            return super().read(name)

    other = EmbeddedLog(log.root)
    before = verify(log.root).digest
    slow = EmbeddedLog(log.root, disk=Swapping(log.root))
    assert backup(slow, tmp_path / "backup").digest == before
    assert swapped[0] > 0
    slow.close()
    other.close()


class Losing(Disk):
    def read(self, name: str) -> pa.Buffer:
        raise Corrupt(what="the chunk (its file is missing)", file=name)

    def exists(self, name: str) -> bool:
        return False


def test_a_listed_file_that_is_missing_is_damage_not_a_reason_to_try_again(log: EmbeddedLog, tmp_path: Path) -> None:
    losing = EmbeddedLog(log.root, disk=Losing(log.root))
    with pytest.raises(Corrupt, match="its file is missing"):
        backup(losing, tmp_path / "backup")
    losing.close()


def test_it_gives_up_when_files_go_every_time(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def gone(*_: Any) -> Any:
        tries.append(1)
        raise backups._Gone

    monkeypatch.setattr(backups._Backup, "_copy_files", gone)
    with pytest.raises(BackupFailed, match="removed 5 times"):
        backup(log, tmp_path / "backup")
    assert len(tries) == 5
    assert not (tmp_path / "backup").exists()


# --- at a position ---


def test_a_backup_at_a_position_is_the_log_as_it_was(log: EmbeddedLog, tmp_path: Path) -> None:
    then = verify(log.root)
    for n in range(30):
        Topic(log, CLICKS).append([click(n)])
        Topic(log, USERS).append([{"user_id": n, "name": "later"}])
    assert backup(log, tmp_path / "before", at=then.position).digest == then.digest
    log.upkeep.roll_up("clicks", least_chunks=2)  # now chunks span the cut
    log.upkeep.roll_up("users", least_chunks=2)
    made = backup(log, tmp_path / "after", at=then.position)
    assert (made.digest, made.append) == (then.digest, then.number)
    again = restored(tmp_path / "after", tmp_path / "again")
    for name in ("clicks", "users"):
        assert rows(again, name).equals(rows(log, name, end=then.position))
    for number in range(1, made.append + 1):  # append boundaries inside of shortened chunks are the same
        at = AppendNumber(number)
        assert again.position_at("clicks", at) == log.position_at("clicks", at)
    done = Topic(again, again.topic("clicks")).append_parts([click(1)])
    assert done.number == made.append + 1
    assert verify(again.root).sound
    again.close()


def test_every_append_can_be_gone_back_to(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(ONE))
    digests, sizes, number = [], (1, 3, 5000, 2, 1), 0
    for size in sizes:
        topic.append([one(n) for n in range(number, number + size)])
        number += size
        digests.append(verify(log.root).digest)
    for name in ("plain", "rolled"):
        for place, digest in enumerate(digests):
            at = Position.of({"one": {0: sum(sizes[: place + 1])}})
            folder = tmp_path / f"{name}{place}"
            assert backup(log, folder, at=at).digest == digest
        log.upkeep.roll_up("one", least_chunks=2)
    log.close()


def test_a_position_inside_of_an_append_is_rounded_down(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(ONE))
    topic.append([one(n) for n in range(3)])
    topic.append([one(n) for n in range(3)])
    for text, position, number in (("one:0=5", "one:0=3", 1), ("one:0=2", "", 0), ("one:0=99", "one:0=6", 2)):
        made = backup(log, tmp_path / f"b{number}", at=Position.parse(text))
        assert (made.position, made.append) == (position, number)
    empty = restored(tmp_path / "b0", tmp_path / "empty")
    assert Topic(empty, empty.topic("one")).append_parts([one(1)]).number == 1
    empty.close()
    log.close()


def test_what_depends_on_later_appends_goes_back_with_them(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(TopicSpec("one", ONE.schema, key=("n",), time="at", partitions=1, versioned=True)))
    producer = log.begin("p")
    ends = []
    for sequence in range(4):
        start, end = (Position.of({"in": {0: at}}) for at in (sequence, sequence + 1))
        parts = topic.parts([one(7), one(20 + sequence)])
        ends.append(log.append(parts, producer=producer, sequence=sequence, progress=Progress(start, end)).position)
    with log.catalog.write() as catalog:
        catalog.execute("INSERT INTO pins VALUES ('pipeline', 1, 0, 8)")
        catalog.execute("INSERT INTO committed VALUES ('g', 1, 0, 8), ('early', 1, 0, 1)")
        catalog.execute("INSERT INTO queues VALUES ('q', 1, 1, 1, 'dead')")
        catalog.execute("INSERT INTO cursors VALUES ('q', 0, 8)")
        catalog.execute("INSERT INTO deliveries VALUES ('q', 0, 1, 'r', 0, 1), ('q', 0, 7, 's', 0, 1)")
    for name in ("plain", "rolled"):
        backup(log, tmp_path / name, at=ends[1])
        again = restored(tmp_path / name, tmp_path / f"{name}.log")
        covered = again.covered("p")
        assert covered is not None
        assert (covered.number, covered.sequence, str(covered.progress.end)) == (2, 1, "in:0=2")
        assert again.versions("one", [(7,), (20,), (22,)]) == [2, 1, 0]
        with again.catalog.read() as catalog:
            assert catalog.execute('SELECT "offset" FROM committed ORDER BY "group"').fetchall() == [(1,), (4,)]
            assert catalog.execute('SELECT "offset" FROM pins').fetchall() == [(4,)]
            assert catalog.execute('SELECT "offset" FROM cursors').fetchall() == [(4,)]
            assert catalog.execute('SELECT "offset" FROM deliveries').fetchall() == [(1,)]
            latest = catalog.execute("SELECT max_time FROM ends").get
        assert latest == max(value.timestamp() for value in rows(again, "one")["at"].to_pylist()) * 1_000_000
        same = again.begin("p")
        assert same.epoch == producer.epoch + 1
        parts = Topic(again, again.topic("one")).parts([one(7)])
        progress = Progress(Position.of({"in": {0: 2}}), Position.of({"in": {0: 3}}))
        assert again.append(parts, producer=same, sequence=2, progress=progress).number == 3
        assert verify(again.root).sound
        again.close()
        log.upkeep.roll_up("one", least_chunks=2)
    log.close()


def test_a_cut_through_a_chunk_that_lost_records_keeps_offsets(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(ONE))
    for n in range(12):
        topic.append([one(n % 5)])
    log.upkeep.roll_up("one", least_chunks=2)
    log.upkeep.forget("one", keys=[{"n": 1}, {"n": 3}])
    for end in (1, 2, 7):
        at = Position.of({"one": {0: end}})
        backup(log, tmp_path / f"b{end}", at=at)
        again = restored(tmp_path / f"b{end}", tmp_path / f"r{end}")
        assert rows(again, "one").equals(rows(log, "one", end=at))
        again.close()
    log.close()


def test_a_position_that_upkeep_has_made_unknowable_is_refused(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    users = Topic(log, log.create(TopicSpec("users", USERS.schema, key=("user_id",), kind="table", partitions=1)))
    topic = Topic(log, log.create(ONE))
    tokens = [topic.append([one(n)]) for n in range(3)]
    for name in ("a", "b"):
        users.append([{"user_id": 1, "name": name}])
        users.append([{"user_id": 1, "name": name, "_weight": -1}])
    log.upkeep.compact("users")
    with pytest.raises(BadPosition, match="'users', partition 0 has since been compacted up to 4"):
        backup(log, tmp_path / "backup", at=tokens[1])
    with log.catalog.write() as catalog:
        catalog.execute("DELETE FROM chunks WHERE topic = 2 AND start < 2")
        catalog.execute("UPDATE ends SET start = 2 WHERE topic = 2")
    with pytest.raises(BadPosition, match="no longer in the log"):
        backup(log, tmp_path / "backup", at=tokens[0])
    assert not (tmp_path / "backup").exists()
    log.close()


def test_a_ring_that_was_not_named_is_cut_to_what_it_still_has(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    bounded = Settings(most_rows=5)
    ring = Topic(log, log.create(TopicSpec("ring", ONE.schema, partitions=1, settings=bounded)))
    topic = Topic(log, log.create(ONE))
    tokens = []
    for n in range(6):
        ring.append([one(n)] * 2)
        tokens.append(topic.append([one(n)]))
    for place, kept in ((0, 0), (2, 1), (3, 3), (5, 5)):
        backup(log, tmp_path / f"b{place}", at=tokens[place])
        again = restored(tmp_path / f"b{place}", tmp_path / f"r{place}")
        assert sum(batch.num_rows for batch in again.scan("ring", 0, again.extents("ring")[0].start, 99)) == kept
        assert rows(again, "one").num_rows == place + 1
        assert verify(again.root).sound
        again.close()
    log.close()


def test_a_position_of_what_is_not_there_is_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound):
        backup(log, tmp_path / "backup", at=Position.parse("nope:0=1"))
    with pytest.raises(BadPartition):
        backup(log, tmp_path / "backup", at=Position.parse("clicks:9=1"))


# --- whole or not there ---


class Full(Disk):
    left = 2

    def write(self, name: str, data: pa.Buffer) -> None:
        Full.left -= 1
        if Full.left < 0:
            raise StorageFailed(act="writing", file=name, why="No space left on device")
        super().write(name, data)


def test_a_full_disk_leaves_nothing(log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "Disk", Full)
    monkeypatch.setattr(Full, "left", 2)
    with pytest.raises(BackupFailed, match="No space left on device"):
        backup(log, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def _backup_until_killed(log: str, folder: str) -> None:
    backups._Backup._finish = lambda *_: os._exit(9)  # type: ignore[method-assign, assignment, misc]
    backup(EmbeddedLog(Path(log)), Path(folder))


def test_a_killed_backup_leaves_nothing_under_its_name_and_can_be_made_again(log: EmbeddedLog, tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_backup_until_killed, args=(str(log.root), str(tmp_path / "backup"))
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert not (tmp_path / "backup").exists()
    assert (tmp_path / "backup.part").is_dir()
    assert verify(log.root).sound
    assert backup(log, tmp_path / "backup").digest == verify(log.root).digest
    assert not (tmp_path / "backup.part").exists()


def test_ctrl_c_leaves_nothing(log: EmbeddedLog, tmp_path: Path) -> None:
    def interrupted(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(log, tmp_path / "backup", advance=interrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_two_backups_to_one_name_do_not_mix(log: EmbeddedLog, tmp_path: Path) -> None:
    tried: list[str] = []

    def another(done: int, total: int) -> None:
        if not tried:
            with pytest.raises(BackupFailed, match="another process is writing") as refused:
                backup(log, tmp_path / "backup")
            tried.append(str(refused.value))

    backup(log, tmp_path / "backup", advance=another)
    assert tried
    assert verify(tmp_path / "backup").sound


def test_a_folder_with_something_in_it_is_not_touched(log: EmbeddedLog, tmp_path: Path) -> None:
    backup(log, tmp_path / "backup")
    with pytest.raises(TargetNotEmpty):
        backup(log, tmp_path / "backup")
    with pytest.raises(TargetNotEmpty):
        restore(tmp_path / "backup", log.root)
    assert verify(log.root).sound


def test_a_damaged_log_is_not_backed_up_as_if_it_were_sound(log: EmbeddedLog, tmp_path: Path) -> None:
    file = sorted((log.root / "chunks").rglob("*.arrow"))[0]
    flip(file)
    with pytest.raises(Corrupt, match=file.name):
        backup(log, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


# --- the check of the copy is itself checked ---


@pytest.mark.parametrize("planted", ["nothing is cut", "one record too many is kept", "a file is copied wrongly"])
def test_a_copy_that_is_not_what_was_asked_for_is_refused(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    at = verify(log.root).position
    Topic(log, CLICKS).append([click(n) for n in range(50)])
    log.upkeep.roll_up("clicks", least_chunks=2)
    records, write = backups.Cut._records, Disk.write
    if planted == "nothing is cut":
        monkeypatch.setattr(backups.Cut, "run", lambda self: None)
    elif planted == "one record too many is kept":
        monkeypatch.setattr(backups.Cut, "_records", lambda *given: records(*given[:-1], given[-1] + 1))
    else:
        monkeypatch.setattr(Disk, "write", lambda self, name, data: write(self, name, data.slice(0, data.size - 1)))
    with pytest.raises(BackupFailed, match="the copy is not what was to be copied"):
        backup(log, tmp_path / "backup", at=at)
    assert not (tmp_path / "backup").exists()


# --- damaged backups ---


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def damage(backup_folder: Path, how: str) -> None:
    chunk = sorted((backup_folder / "chunks").rglob("*.arrow"))[0]
    manifest = backup_folder / "backup.json"
    told = json.loads(manifest.read_text())
    if how == "chunk":
        flip(chunk)
    elif how == "missing":
        chunk.unlink()
    elif how == "catalog":
        flip(backup_folder / "catalog.db")
    elif how == "no manifest":
        manifest.unlink()
    elif how == "manifest":
        manifest.write_text("{")
    elif how == "digest":
        manifest.write_text(json.dumps({**told, "digest": "0" * 64}))
    else:
        manifest.write_text(json.dumps({**told, "format": 3}))


@pytest.mark.parametrize("how", ["chunk", "missing", "catalog", "no manifest", "manifest", "digest", "format"])
def test_a_damaged_backup_is_refused_and_nothing_is_written(log: EmbeddedLog, tmp_path: Path, how: str) -> None:
    backup(log, tmp_path / "backup")
    damage(tmp_path / "backup", how)
    with pytest.raises(BadBackup, match="cannot be restored: .*nothing was written"):
        restore(tmp_path / "backup", tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "log"]


@pytest.mark.parametrize("name", ["../../outside", "/etc/outside", "chunks/../../outside"])
def test_a_catalog_that_names_files_elsewhere_writes_nothing_there(log: EmbeddedLog, tmp_path: Path, name: str) -> None:
    with log.catalog.write() as catalog:
        catalog.execute("UPDATE chunks SET file = ? WHERE id = (SELECT max(id) FROM chunks)", (name,))
    with pytest.raises((BadBackup, Corrupt)):
        backup(log, tmp_path / "backup")
    with pytest.raises(BadBackup, match="which is no file of chunks"):
        backups.inside(name, tmp_path)


def test_a_restore_only_reads_the_backup(log: EmbeddedLog, tmp_path: Path) -> None:
    backup(log, tmp_path / "backup")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "backup").rglob("*")}
    restore(tmp_path / "backup", tmp_path / "again")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "backup").rglob("*")} == before


# --- the commands ---


def run(*args: str) -> Any:
    cli = typer.Typer()
    cli.command("backup")(commands.backup)
    cli.command("restore")(commands.restore)
    return CliRunner().invoke(cli, args)


def test_the_commands_copy_there_and_back(log: EmbeddedLog, tmp_path: Path) -> None:
    url, folder = f"file:{log.root}", str(tmp_path / "backup")
    at = log.position_at("clicks", AppendNumber(7))
    told = run("backup", "--log", url, "--to", folder, "--at", str(Position.of({"clicks": at})), "--json")
    assert told.exit_code == 0, told.exception
    assert json.loads(told.stdout)["append"] == 8  # append 8 is of users: clicks stand where they stood
    back = run("restore", "--from", folder, "--to", f"file:{tmp_path / 'again'}")
    assert back.stdout.startswith(f"restored to file:{tmp_path / 'again'}: 8 records up to append 8\n")
    assert isinstance(run("backup", "--log", "file:/nowhere/at/all", "--to", folder).exception, BadLogUrl)
    assert isinstance(run("restore", "--from", folder, "--to", "kafka://x").exception, BadLogUrl)
