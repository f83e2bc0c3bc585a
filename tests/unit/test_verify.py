"""`verify` finds every planted damage, and says the same of the same records however they rest."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from headwater.cli.verify import verify as command
from headwater.errors import BadLogUrl, Corrupt
from headwater.log import Position, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, wal
from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.digest import PartitionDigest
from headwater.log.embedded.verify import Verdict, verify
from headwater.records import schema_of
from headwater.testing.log_contract import CLICKS, USERS, click

MANY = pa.table({"user_id": range(20_000), "page": ["/a/rather/long/page"] * 20_000})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """Some inlined chunks, some in files, a table, and an orphan-free folder."""
    opened = EmbeddedLog(tmp_path / "log")
    clicks, users = Topic(opened, opened.create(CLICKS)), Topic(opened, opened.create(USERS))
    for n in range(20):
        clicks.append([click(n)])
        users.append([{"user_id": n, "name": f"user {n}"}])
    clicks.append(MANY)
    yield opened
    opened.close()


def change(log: EmbeddedLog, statement: str, *given: Any) -> None:
    with log.catalog.write() as catalog:
        catalog.execute(statement, given)
        assert catalog.changes() == 1


def flip(file: Path, where: int) -> None:
    with open(file, "r+b") as opened:
        opened.seek(where)
        old = opened.read(1)[0]
        opened.seek(where)
        opened.write(bytes([old ^ 0xFF]))


def what(verdict: Verdict) -> str:
    assert not verdict.sound
    assert verdict.digest is None
    return "\n".join(str(finding) for finding in verdict.findings if finding.serious)


# --- a sound log ---


def test_a_sound_log_is_said_to_be_sound_with_all_that_was_checked(log: EmbeddedLog) -> None:
    verdict = verify(log.root)
    assert verdict.findings == ()
    assert (verdict.records, verdict.number) == (20_040, 41)
    assert verdict.position == log.snapshot(["clicks", "users"]).position
    assert verdict.digest is not None


def test_an_empty_log_is_sound(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path).close()
    assert verify(tmp_path).sound


def test_progress_comes_to_its_end(log: EmbeddedLog) -> None:
    told: list[tuple[int, int]] = []
    verify(log.root, advance=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_a_file_listed_nowhere_is_counted_and_no_damage(log: EmbeddedLog) -> None:
    Topic(log, CLICKS).parts(MANY, partition=0)  # staged, never appended
    verdict = verify(log.root)
    assert verdict.sound
    assert verdict.orphan_files == 1
    assert verdict.orphan_bytes > 100_000
    assert not verdict.findings[0].serious


def test_a_log_is_verified_while_others_append(log: EmbeddedLog, until: Callable[..., None]) -> None:
    stop = threading.Event()
    verdicts: list[Verdict] = []

    def two_differ() -> bool:
        verdicts.append(verify(log.root))
        return len({verdict.digest for verdict in verdicts}) > 1

    def append() -> None:
        topic = Topic(log, CLICKS)
        while not stop.is_set():
            topic.append([click(1)])

    thread = threading.Thread(target=append)
    thread.start()
    try:
        until(two_differ)
    finally:
        stop.set()
        thread.join()
    assert {verdict.findings for verdict in verdicts} == {()}


# --- the digest ---


def test_the_digest_does_not_depend_on_how_chunks_rest(log: EmbeddedLog, tmp_path: Path) -> None:
    before = verify(log.root).digest
    other = EmbeddedLog(tmp_path / "other")
    clicks, users = Topic(other, other.create(CLICKS)), Topic(other, other.create(USERS))
    users.append([{"user_id": n, "name": f"user {n}"} for n in range(20)])
    for partition in range(4):  # the same records in other appends
        records = Topic(log, CLICKS).read().drop_columns(["_appended_at"])
        own = records.filter(pa.compute.equal(records["_partition"], partition)).select(["user_id", "page"])
        for start in range(0, own.num_rows, 777):
            clicks.append(own.slice(start, 777), partition=partition)
    assert verify(other.root).digest == before
    other.close()
    log.upkeep.roll_up("clicks", least_chunks=2)
    assert verify(log.root).digest == before


@pytest.mark.parametrize(
    "differently",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows[:-1], {**rows[-1], "page": None}],
        lambda rows: [*rows[:-1], {**rows[-1], "page": ""}],
        lambda rows: [*rows[:-2], rows[-1], rows[-2]],
    ],
)
def test_other_records_have_another_digest(tmp_path: Path, differently: Callable[[Any], Any]) -> None:
    rows = [click(n) for n in range(5)]
    digests = []
    for name, given in (("one", rows), ("two", differently(rows))):
        log = EmbeddedLog(tmp_path / name)
        Topic(log, log.create(CLICKS)).append(given, partition=0)
        digests.append(verify(log.root).digest)
        log.close()
    assert digests[0] != digests[1]


def test_the_digest_is_of_values_not_of_batches_or_unused_bytes() -> None:
    schema = schema_of(
        {
            "i": "int32",
            "b": "bool",
            "s": "string",
            "raw": "binary",
            "d": "decimal(10,2)",
            "t": "timestamp",
            "l": "list<string>",
            "st": "struct<a: int64, l: list<int64>>",
            "m": "map<string, int64>",
        }
    )
    now = datetime(2026, 1, 2, tzinfo=UTC)
    full = {
        "i": 7,
        "b": True,
        "s": "héllo",
        "raw": b"\0\1",
        "d": Decimal("1.50"),
        "t": now,
        "l": ["x", None, ""],
        "st": {"a": 1, "l": [1, 2]},
        "m": {"k": 1},
    }
    rows = [full, dict.fromkeys(full), {**full, "l": [], "m": {}, "st": {"a": None, "l": None}}, full] * 5
    whole = pa.RecordBatch.from_pylist(rows, schema)
    garbled = whole.set_column(
        0,
        schema.field("i"),
        pa.Array.from_buffers(
            pa.int32(),
            20,
            [
                whole.column(0).buffers()[0],
                pa.py_buffer(np.where(whole.column(0).is_valid().to_numpy(False), 7, 99).astype("<i4").tobytes()),
            ],
        ),
    )
    digests = set()
    for batches in ([whole], [whole.slice(n, 1) for n in range(20)], [whole.slice(0, 3), whole.slice(3)], [garbled]):
        digest, offset = PartitionDigest(), 0
        for batch in batches:
            digest.add(np.arange(offset, offset + batch.num_rows), batch)
            offset += batch.num_rows
        digests.add(digest.hex())
    assert len(digests) == 1
    changed = PartitionDigest()
    changed.add(np.arange(20), pa.RecordBatch.from_pylist([*rows[:-1], {**full, "m": {"k": 2}}], schema))
    assert changed.hex() not in digests


def test_older_schemas_are_digested_as_the_newest(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    narrow = TopicSpec("t", schema_of({"n": "int32"}), partitions=1)
    Topic(log, log.create(narrow)).append([{"n": 1}])
    wide = TopicSpec("t", schema_of({"n": "int64", "more": "string"}), partitions=1)
    Topic(log, log.create(wide)).append([{"n": 2, "more": "x"}])
    before = verify(log.root)
    assert before.findings == ()
    log.upkeep.roll_up("t", least_chunks=2)
    assert verify(log.root).digest == before.digest
    log.close()


# --- damage ---


@pytest.mark.parametrize("where", [0, 0.1, 0.5, 0.9, 0.9999])
def test_a_flipped_byte_in_a_chunk_file_is_found(log: EmbeddedLog, where: float) -> None:
    assert Topic(log, CLICKS).read().num_rows == 20_020  # verified once already, and mapped, by this process
    file = sorted((log.root / "chunks").rglob("*.arrow"))[1]
    flip(file, int(where * file.stat().st_size))
    assert f"file chunks/clicks/{file.name}: the chunk's bytes are not those that were written" in what(
        verify(log.root)
    )


def test_a_chunk_file_cut_short_or_empty_is_found(log: EmbeddedLog) -> None:
    files = sorted((log.root / "chunks").rglob("*.arrow"))
    for file, size in ((files[0], 0), (files[1], 1000)):
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content[:size])
    assert what(verify(log.root)).count("not those that were written") == 2


def test_a_missing_file_is_found_and_named(log: EmbeddedLog) -> None:
    file = sorted((log.root / "chunks").rglob("*.arrow"))[0]
    file.unlink()
    verdict = verify(log.root)
    (finding,) = verdict.findings
    assert (finding.topic, finding.partition, finding.file) == ("clicks", 0, f"chunks/clicks/{file.name}")
    assert finding.what == "its file is missing"


def test_a_flipped_byte_in_inlined_data_is_found(log: EmbeddedLog) -> None:
    with log.catalog.read() as catalog:
        number, data = catalog.execute("SELECT id, data FROM chunks WHERE data NOT NULL LIMIT 1").fetchone()
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    change(log, "UPDATE chunks SET data = ? WHERE id = ?", bytes(changed), number)
    assert "catalog.db: the chunk's bytes are not those that were written" in what(verify(log.root))


def test_an_archived_chunk_is_checked_where_it_is(log: EmbeddedLog, tmp_path: Path) -> None:
    assert log.upkeep.archive("clicks", f"file://{tmp_path}/cold", older_than_s=0) == 4
    assert verify(log.root).findings == ()
    flip(sorted((tmp_path / "cold").rglob("*.arrow"))[0], 500)
    assert "file file://" in what(verify(log.root))


def test_every_flipped_byte_of_the_catalog_is_found_or_changes_nothing(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(CLICKS))
    for n in range(60):
        topic.append([click(n)])
    log.catalog.truncate_wal()
    log.close()
    file = tmp_path / "log" / "catalog.db"
    sound, content = verify(tmp_path / "log"), file.read_bytes()
    assert sound.sound
    chosen = random.Random(7)
    found = 0
    header = [16, 18, 20, 24, 52, 100]  # page size, WAL, reserved bytes, change counter, vacuum, first page
    for where in [*header, *(chosen.randrange(len(content)) for _ in range(30))]:
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        file.write_bytes(content)
        flip(file, where)
        verdict = verify(tmp_path / "log")
        found += not verdict.sound
        assert not verdict.sound or verdict.digest == sound.digest, f"byte {where} was flipped and not found"
    assert found >= 30


def test_a_flipped_byte_in_pages_that_a_process_has_cached_is_found(log: EmbeddedLog) -> None:
    log.catalog.truncate_wal()
    with log.catalog.read() as catalog:
        assert catalog.execute("SELECT count(*), sum(length(data)) FROM chunks").fetchone()[0] == 44
        page = catalog.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'chunks'").get
    flip(log.root / "catalog.db", (page - 1) * 4096 + 60)
    assert "catalog" in what(verify(log.root))


def test_a_damaged_write_ahead_log_is_found_before_sqlite_cuts_it(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    topic = Topic(log, log.create(CLICKS))
    for n in range(30):
        topic.append([click(n)])

    def crashed(name: str) -> Path:
        """The folder as a crash right now would leave it."""
        return Path(shutil.copytree(log.root, tmp_path / name, ignore=shutil.ignore_patterns("*-shm")))

    whole = crashed("whole")
    size = (whole / "catalog.db-wal").stat().st_size
    sound = verify(whole)
    assert (sound.findings, sound.records) == ((), 30)
    torn = crashed("torn")
    os.truncate(torn / "catalog.db-wal", size - 4000)  # in the middle of the last append: nobody was told of it
    assert (verify(torn).findings, verify(torn).records) == ((), 29)
    chosen, last = random.Random(7), size - 20 * 4120  # nothing follows on the last append
    for attempt, where in enumerate([64, 36, 50, *(chosen.randrange(32, last) for _ in range(12))]):
        copy = crashed(f"copy{attempt}")
        flip(copy / "catalog.db-wal", where)
        assert "of the catalog's WAL, with appends after it" in what(verify(copy))
        with pytest.raises(Corrupt, match="WAL, with appends after it, in"):
            EmbeddedLog(copy)  # nor does opening it cut them off in silence
    log.close()


# --- planted contradictions: the checker is itself checked ---

LAST = '(SELECT max(id) FROM chunks WHERE topic = 1 AND partition = 0 AND "end" < 100)'


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"DELETE FROM chunks WHERE id = {LAST}", "no chunk has the offsets"),
        ("DELETE FROM chunks WHERE topic = 1 AND partition = 0 AND start = 0", "no chunk has the offsets 0 to 0"),
        ("DELETE FROM chunks WHERE topic = 1 AND partition = 0 AND size > 9999", "but the last chunk ends at"),
        ('UPDATE ends SET "end" = "end" + 1 WHERE topic = 1 AND partition = 2', "but the last chunk ends at"),
        (f"UPDATE chunks SET start = start - 1 WHERE id = {LAST}", "two chunks have the offsets"),
        (f"UPDATE chunks SET schema = 9 WHERE id = {LAST}", "names version 9 of the schema"),
        (f"UPDATE chunks SET rows = 2 WHERE id = {LAST}", "the chunk has 1 records, listed are 2 in 1 offsets"),
        (f"UPDATE chunks SET append = 1, last_append = 1 WHERE id = {LAST}", "append 1 comes after append"),
        (f"UPDATE chunks SET last_append = 999 WHERE id = {LAST}", "an append that was never made"),
        (f"UPDATE chunks SET data = NULL WHERE id = {LAST}", "neither inlined nor a file"),
        ("INSERT INTO garbage SELECT file, 0 FROM chunks WHERE file NOT NULL LIMIT 1", "both listed and garbage"),
        ("INSERT INTO committed VALUES ('g', 1, 0, 999999)", "committed beyond the end: g"),
        ("DELETE FROM topics WHERE id = 2", "chunks of a topic that is not there: 2"),
    ],
)
def test_a_planted_contradiction_is_found(log: EmbeddedLog, statement: str, told: str) -> None:
    change(log, statement)
    assert told in what(verify(log.root))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda b: Bounds(b.appends, b.ends - 1, b.times), "do not end at its own end"),
        (lambda b: Bounds(b.appends, b.ends[[1, 0, *range(2, len(b.ends))]], b.times), "go back in their offsets"),
        (lambda b: Bounds(b.appends + 1, b.ends, b.times), "are not those of appends"),
    ],
)
def test_wrong_ends_of_appends_in_a_rolled_chunk_are_found(
    log: EmbeddedLog, wrong: Callable[[Bounds], Bounds], told: str
) -> None:
    log.upkeep.roll_up("users", least_chunks=2)
    with log.catalog.read() as catalog:
        number, bounds = catalog.execute("SELECT id, bounds FROM chunks WHERE bounds NOT NULL LIMIT 1").fetchone()
    change(log, "UPDATE chunks SET bounds = ? WHERE id = ?", wrong(Bounds.decode(bounds)).encode(), number)
    assert told in what(verify(log.root))


def test_a_file_that_upkeep_swaps_during_the_check_is_no_damage(log: EmbeddedLog) -> None:
    swapped: list[int] = []

    class Swapping(type(log.disk)):  # type: ignore[misc]
        def read(self, name: str) -> pa.Buffer:
            if not swapped:
                swapped.append(log.upkeep.roll_up("clicks", least_chunks=2))
                for file in (log.root / "chunks").rglob("*.arrow"):
                    file.unlink()
            return super().read(name)

    before = verify(log.root).digest
    verdict = verify(log.root, disk=Swapping(log.root))
    assert swapped[0] > 0
    assert (verdict.findings, verdict.digest) == ((), before)


def test_trimmed_records_are_not_part_of_what_the_log_says(log: EmbeddedLog) -> None:
    before = verify(log.root).digest
    change(log, "UPDATE ends SET start = 2 WHERE topic = 1 AND partition = 0")
    change(log, "DELETE FROM chunks WHERE topic = 1 AND partition = 0 AND start = 0")
    verdict = verify(log.root)
    assert verdict.sound
    assert verdict.records == 20_038
    assert verdict.digest != before


# --- the command ---


def run(*args: str) -> Any:
    cli = typer.Typer()
    cli.command()(command)
    return CliRunner().invoke(cli, args)


def test_the_command_answers_for_people_and_programs(log: EmbeddedLog) -> None:
    url = f"file:{log.root}"
    told = run("--log", url)
    assert told.exit_code == 0
    assert told.stdout.startswith("sound: 20040 records in 44 chunks")
    answer = json.loads(run("--log", url, "--json").stdout)
    assert answer["sound"] is True
    assert Position.parse(answer["position"]) == log.snapshot(["clicks", "users"]).position
    file = sorted((log.root / "chunks").rglob("*.arrow"))[0]
    flip(file, 100)
    damaged = run("--log", url, "--json")
    assert damaged.exit_code == 7
    finding = json.loads(damaged.stdout)["findings"][0]
    assert (finding["topic"], finding["serious"]) == ("clicks", True)
    assert "DAMAGED" in run("--log", url).stdout


def test_a_catalog_that_is_none_is_damage_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 1000)
    assert run("--log", f"file:{tmp_path}", "--json").exit_code == 7


def test_verifying_does_not_make_a_log(tmp_path: Path) -> None:
    told = run("--log", f"file:{tmp_path / 'typo'}")
    assert isinstance(told.exception, BadLogUrl)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("in_use", [False, True])
def test_the_write_ahead_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_use: bool) -> None:
    log = EmbeddedLog(tmp_path / "log")
    Topic(log, log.create(CLICKS)).append([click(1)])
    if not in_use:
        log.close()
    reads: list[Path] = []
    scan = wal._scan
    monkeypatch.setattr(wal, "_scan", lambda path: [reads.append(path), scan(path)][1])
    assert verify(log.root).sound
    assert len(reads) == 1
    if in_use:
        log.close()
