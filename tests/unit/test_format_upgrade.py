"""A log of an older format opens: upgraded in one transaction, with all that was in it, or left as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from headwater.errors import NewerFormat, UpgradeBlocked
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, tables
from headwater.log.embedded.backup import backup, restore
from headwater.log.embedded.catalog import CHECKSUM_BYTES, _checksum_vfs
from headwater.log.embedded.groups import EmbeddedGroups
from headwater.log.embedded.health import health
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.log.embedded.verify import verify
from headwater.log.queues import Queue
from headwater.records import schema_of

# Word for word what Headwater made before format 2.
FORMAT_1 = """
CREATE TABLE topics(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, time TEXT, kind TEXT NOT NULL,
  partitions INTEGER NOT NULL, settings TEXT NOT NULL) STRICT;
CREATE TABLE schemas(
  topic INTEGER NOT NULL, version INTEGER NOT NULL, schema BLOB NOT NULL, PRIMARY KEY(topic, version)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE ends(
  topic INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
  horizon INTEGER NOT NULL, max_time INTEGER, dropped INTEGER NOT NULL, PRIMARY KEY(topic, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE producers(name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, last_append INTEGER) STRICT, WITHOUT ROWID;
CREATE TABLE appends(
  number INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, position TEXT,
  producer TEXT, epoch INTEGER, sequence INTEGER, progress_start TEXT, progress_end TEXT) STRICT;
CREATE UNIQUE INDEX appends_by_producer ON appends(producer, sequence) WHERE producer IS NOT NULL;
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
  "end" INTEGER NOT NULL, rows INTEGER NOT NULL, append INTEGER NOT NULL, last_append INTEGER NOT NULL,
  schema INTEGER NOT NULL, crc INTEGER NOT NULL, size INTEGER NOT NULL, appended_at INTEGER NOT NULL,
  time_before INTEGER, file TEXT, data BLOB, bounds BLOB) STRICT;
CREATE UNIQUE INDEX chunks_by_offset ON chunks(topic, partition, "end");
CREATE INDEX chunks_by_append ON chunks(topic, append, partition);
CREATE TABLE garbage(file TEXT PRIMARY KEY, since INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE versions(
  topic INTEGER NOT NULL, key BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY(topic, key)) STRICT, WITHOUT ROWID;
CREATE TABLE pins(
  name TEXT NOT NULL, topic INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
  PRIMARY KEY(name, topic, partition)) STRICT, WITHOUT ROWID;
CREATE TABLE groups(
  name TEXT NOT NULL, topic INTEGER NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY(name, topic)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE members(
  "group" TEXT NOT NULL, topic INTEGER NOT NULL, member TEXT NOT NULL, alive_until INTEGER NOT NULL,
  PRIMARY KEY("group", topic, member)) STRICT, WITHOUT ROWID;
CREATE TABLE committed(
  "group" TEXT NOT NULL, topic INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
  PRIMARY KEY("group", topic, partition)) STRICT, WITHOUT ROWID;
CREATE TABLE queues(
  name TEXT PRIMARY KEY, topic INTEGER NOT NULL, lease INTEGER NOT NULL, attempts INTEGER NOT NULL, dead TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
CREATE TABLE cursors(
  queue TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, PRIMARY KEY(queue, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE deliveries(
  queue TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, receipt TEXT NOT NULL,
  until INTEGER NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY(queue, partition, "offset")) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
"""

JOBS = TopicSpec("jobs", schema_of({"id": "int64", "what": "string"}), key=("id",), partitions=2)


def connect(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), vfs=_checksum_vfs())


def shape(folder: Path) -> set[tuple[object, ...]]:
    return set(connect(folder / "catalog.db").execute("SELECT type, name, sql FROM sqlite_schema").fetchall())


def format_of(folder: Path) -> int:
    return int(connect(folder / "catalog.db").pragma("user_version"))


@pytest.fixture
def made_today(tmp_path: Path) -> Path:
    """A log in use: inlined chunks and files, a group that has committed, a queue with a record taken."""
    log = EmbeddedLog(tmp_path / "today")
    jobs = Topic(log, log.create(JOBS))
    for n in range(5):
        jobs.append([{"id": n, "what": "small"}])
    jobs.append([{"id": n, "what": "a rather long text, so that it is a file"} for n in range(5000)])
    groups = EmbeddedGroups(log)
    generation = groups.join("readers", "jobs", "a").generation
    groups.commit("readers", "jobs", "a", generation=generation, offsets={0: 2})
    EmbeddedQueues(log).create("work", "jobs")
    Queue(log, EmbeddedQueues(log), "work").take(3)
    log.close()
    return tmp_path / "today"


@pytest.fixture
def old(tmp_path: Path, made_today: Path) -> Path:
    """The same log as an older Headwater would have made it: its tables, these rows, the same files."""
    folder = tmp_path / "old"
    shutil.copytree(made_today / "chunks", folder / "chunks")
    catalog = connect(folder / "catalog.db")
    catalog.reserve_bytes("main", CHECKSUM_BYTES)
    catalog.pragma("journal_mode", "wal")
    catalog.execute(FORMAT_1)
    catalog.execute("ATTACH ? AS today", (str(made_today / "catalog.db"),))
    for (table,) in catalog.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
        catalog.execute(f"INSERT INTO main.{table} SELECT * FROM today.{table}")
    catalog.close()
    assert format_of(folder) == 1
    return folder


def test_an_older_log_opens_as_one_made_today_with_all_that_was_in_it(old: Path, made_today: Path) -> None:
    expected = verify(made_today)
    log = EmbeddedLog(old)
    assert format_of(old) == tables.FORMAT
    assert shape(old) == shape(made_today)
    verdict = verify(old)
    assert (verdict.digest, verdict.findings) == (expected.digest, ())
    assert EmbeddedGroups(log).committed("readers", "jobs")[0] == 2
    assert sum(row.taken for row in EmbeddedQueues(log).lag("work")) == 3
    assert len(Queue(log, EmbeddedQueues(log), "work").take(2)) == 2
    Topic(log, log.topic("jobs")).append([{"id": 7, "what": "new"}])
    log.close()
    EmbeddedLog(old).close()
    assert verify(old).sound


def test_an_upgrade_that_fails_leaves_the_older_format(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shape(old)
    with monkeypatch.context() as patch:
        patch.setitem(tables.STEPS, 1, f"{tables.STEPS[1]} CREATE TABLE half(x); CREATE TABLE topics(twice);")
        with pytest.raises(apsw.SQLError, match="already exists"):
            EmbeddedLog(old)
    assert (format_of(old), shape(old)) == (1, before)
    EmbeddedLog(old).close()
    assert format_of(old) == tables.FORMAT


def test_looking_at_an_older_log_leaves_it_as_it_is(old: Path, made_today: Path) -> None:
    assert verify(old).digest == verify(made_today).digest
    assert health(old).format == 1
    assert format_of(old) == 1


def test_a_log_that_an_older_headwater_has_open_is_not_upgraded_under_its_hands(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tables, "FORMAT", 1)
        older = EmbeddedLog(old)
    with pytest.raises(UpgradeBlocked, match="format 1 and is in use.* format 2; nothing was changed. Stop all"):
        EmbeddedLog(old)
    older.close()
    EmbeddedLog(old).close()
    assert format_of(old) == tables.FORMAT


def test_a_backup_of_an_older_format_is_restored_as_a_log_of_this_one(
    old: Path, made_today: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tables, "FORMAT", 1)
        older = EmbeddedLog(old)
        manifest = backup(older, tmp_path / "backup")
        older.close()
    assert format_of(tmp_path / "backup") == 1
    restore(tmp_path / "backup", tmp_path / "again")
    log = EmbeddedLog(tmp_path / "again")
    assert (format_of(tmp_path / "again"), verify(log.root).digest) == (tables.FORMAT, manifest.digest)
    log.close()


def test_a_newer_format_is_refused_and_not_touched(old: Path) -> None:
    connect(old / "catalog.db").pragma("user_version", tables.FORMAT + 1)
    before = shape(old)
    with pytest.raises(NewerFormat, match="Upgrade Headwater to open this log"):
        EmbeddedLog(old)
    assert (format_of(old), shape(old)) == (tables.FORMAT + 1, before)


def test_every_older_format_has_a_step_to_the_next() -> None:
    assert sorted(tables.STEPS) == list(range(1, tables.FORMAT))
