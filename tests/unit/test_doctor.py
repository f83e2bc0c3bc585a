"""`doctor` says of this machine and of a log what is well, what is not, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import typer
from typer.testing import CliRunner

from headwater.cli import doctor as doctors
from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.tables import FORMAT
from headwater.testing.log_contract import CLICKS, click


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of our own, so that what this machine has does not matter."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return program


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log")
    topic = Topic(opened, opened.create(CLICKS))
    for n in range(10):
        topic.append([click(n)])
    yield opened
    opened.close()


def run(*args: str) -> Any:
    cli = typer.Typer()
    cli.command()(doctors.doctor)
    return CliRunner().invoke(cli, args)


def lines(folder: Path) -> dict[str, dict[str, str]]:
    return {line["about"]: line for line in json.loads(run("--log", f"file:{folder}", "--json").stdout)}


def test_all_is_well_and_one_page(log: EmbeddedLog) -> None:
    told = run("--log", f"file:{log.root}")
    assert told.exit_code == 0
    assert "ok       java: openjdk version" in told.stdout
    assert "ok       topic clicks: 10 records," in told.stdout
    assert "10 chunks (10 inlined)" in told.stdout
    assert "error" not in told.stdout
    assert len(told.stdout.splitlines()) < 30


def test_as_json_each_line_has_its_state(log: EmbeddedLog) -> None:
    found = lines(log.root)
    assert set(found) >= {"python", "java", "sqlite", "disk", "log", "topic clicks", "garbage", "write-ahead log"}
    assert {line["state"] for about, line in found.items() if about != "disk"} == {"ok"}
    assert found["log"]["says"].endswith(f"format {FORMAT}")
    assert "with page checksums" in found["sqlite"]["says"]


@pytest.mark.parametrize(
    ("says", "state"), [('openjdk version "11.0.2"', "error"), ("nonsense", "error"), ('java version "21"', "ok")]
)
def test_java_must_be_17_or_newer(java: Path, tmp_path: Path, says: str, state: str) -> None:
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    assert lines(tmp_path / "none")["java"]["state"] == state


def test_a_missing_java_is_an_error_with_what_to_do(java: Path, tmp_path: Path) -> None:
    java.unlink()
    told = run("--log", f"file:{tmp_path / 'none'}")
    assert told.exit_code == 1
    assert "error    java: there is none\n           -> Install Java 17 or newer" in told.stdout


def test_an_old_sqlite_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    assert lines(tmp_path)["sqlite"]["state"] == "error"


@pytest.mark.parametrize(("free", "state"), [(10**6, "error"), (10**9, "warning"), (10**12, "ok")])
def test_little_space_is_told(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, free))
    assert lines(log.root)["disk"]["state"] == state


def test_no_log_yet_is_told_and_none_is_made(tmp_path: Path) -> None:
    found = lines(tmp_path / "typo" / "deeper")
    assert found["log"]["state"] == "warning"
    assert not (tmp_path / "typo").exists()
    assert json.loads(run("--log", "kafka://x", "--json").stdout)[-1]["state"] == "error"


def test_a_damaged_catalog_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 1000)
    told = run("--log", f"file:{tmp_path}", "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)[-1] == {
        "state": "error",
        "about": "log",
        "says": f"the catalog in {tmp_path}/catalog.db is damaged",
        "do": "Restore this file from a backup; nothing was changed",
    }


def test_many_small_chunks_are_told(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors, "MANY_CHUNKS", 10)
    line = lines(log.root)["topic clicks"]
    assert line["state"] == "warning"
    assert "roll them up" in line["do"]


def test_garbage_and_orphans_are_counted(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"user_id": n, "page": "/a/rather/long/page" * 9} for n in range(1000)]
    Topic(log, CLICKS).append(many, partition=0)
    log.upkeep.roll_up("clicks", least_chunks=2)
    Topic(log, CLICKS).parts(many, partition=1)
    monkeypatch.setattr(doctors, "LARGE_GARBAGE", 1000)
    line = lines(log.root)["garbage"]
    assert line["state"] == "warning"
    assert line["says"].startswith("1 files swapped out, 18")
    assert "; 1 listed nowhere, 18" in line["says"]


def test_who_holds_upkeep_back_is_named(log: EmbeddedLog) -> None:
    with log.catalog.write() as catalog:
        catalog.execute("INSERT INTO pins VALUES ('pipeline', 1, 0, 1)")
        catalog.execute("INSERT INTO committed VALUES ('billing', 1, 0, 0), ('mail', 1, 0, 0)")
        catalog.execute("INSERT INTO members VALUES ('mail', 1, 'm', ?)", (2**62,))
    found = lines(log.root)
    assert found["pin pipeline on clicks"]["state"] == "ok"
    assert found["group mail on clicks"]["state"] == "ok"
    assert found["group billing on clicks"]["state"] == "warning"
    assert "no member is alive" in found["group billing on clicks"]["says"]


def test_a_large_write_ahead_log_is_told(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors, "LARGE_WAL", 100)
    assert lines(log.root)["write-ahead log"]["state"] == "warning"
