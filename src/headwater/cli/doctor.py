"""`headwater doctor`: this machine and this log on one page, each line with what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer

from headwater.cli.existing import folder_of
from headwater.cli.output import LOG, Json, LogUrl
from headwater.errors import HeadwaterError

PYTHON = (3, 11)
JAVA = 17
SQLITE = (3, 51, 3)
"""Older ones may damage a database when its WAL is reset."""
LEAST_FREE, LITTLE_FREE = 200 * 2**20, 2 * 2**30
LARGE_WAL = 256 * 2**20
LARGE_GARBAGE = 2**30
MANY_CHUNKS, SMALL_CHUNK = 1000, 64 * 1024
"""So many chunks that are so small on average are slow to read."""
FAR_BEHIND = 1_000_000

State = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Line:
    state: State
    about: str
    says: str
    do: str = ""


def doctor(log: LogUrl = LOG, as_json: Json = False) -> None:
    """Is this machine fit for Headwater, and is the log well? Exit code 1 if something is wrong."""
    lines = [*_machine(), *_log(log)]
    if as_json:
        sys.stdout.write(json.dumps([asdict(line) for line in lines]) + "\n")
    else:
        for line in lines:
            sys.stdout.write(f"{line.state:<8} {line.about}: {line.says}\n")
            if line.do:
                sys.stdout.write(f"{'':<8}   -> {line.do}\n")
    if any(line.state == "error" for line in lines):
        raise typer.Exit(1)


# --- the machine ---


def _machine() -> Iterator[Line]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield _judged("python", version, wrong=sys.version_info[:2] < PYTHON, do="Use Python 3.11 or newer")
    yield _java()
    yield _sqlite()


def _java() -> Line:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    do = f"Install Java {JAVA} or newer (apt install openjdk-17-jre), or set JAVA_HOME; views need it, topics do not"
    if java is None or not Path(java).exists():
        return Line("error", "java", "there is none", do)
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Line("error", "java", f"{java} does not start ({error})", do)
    version = re.search(r'version "(\d+)', told)
    says = told.splitlines()[0] if told else f"{java} says nothing"
    return _judged("java", says, wrong=version is None or int(version[1]) < JAVA, do=do)


def _sqlite() -> Line:
    import apsw

    from headwater.log.embedded.catalog import _checksum_vfs

    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE:
        return Line("error", "sqlite", version, "Upgrade apsw: this SQLite may damage a database when its WAL is reset")
    try:
        _checksum_vfs()
    except (apsw.Error, OSError, ValueError) as error:
        return Line("error", "sqlite", f"{version}, without page checksums ({error})", "Install apsw from its wheel")
    return Line("ok", "sqlite", f"{version}, with page checksums")


# --- the log ---


def _log(url: str) -> Iterator[Line]:
    try:
        folder = folder_of(url)
    except HeadwaterError as error:
        yield Line("error", "log", error.what, error.do)
        return
    yield _space(folder)
    if not (folder / "catalog.db").is_file():
        yield Line(
            "warning", "log", f"there is none in {folder} yet", "Name yours with --log file:PATH, or make a topic"
        )
        return
    from headwater.log.embedded.health import health

    try:
        found = health(folder)
    except HeadwaterError as error:
        yield Line("error", "log", error.what, error.do)
        return
    yield Line("ok", "log", f"{folder}, format {found.format}")
    for topic in found.topics:
        says = f"{topic.records} records, {_size(topic.size)}, {topic.chunks} chunks ({topic.inlined} inlined)"
        crowded = topic.chunks >= MANY_CHUNKS and topic.size < topic.chunks * SMALL_CHUNK
        do = "Many small chunks are slow to read: append more at a time, and let upkeep roll them up"
        yield Line("warning" if crowded else "ok", f"topic {topic.topic}", says, do if crowded else "")
    waiting = found.garbage_bytes + found.orphan_bytes
    yield _judged(
        "garbage",
        f"{found.garbage_files} files swapped out, {_size(found.garbage_bytes)}; "
        f"{found.orphan_files} listed nowhere, {_size(found.orphan_bytes)}",
        odd=waiting > LARGE_GARBAGE,
        do="Run upkeep: it removes them after a grace period",
    )
    yield _judged(
        "write-ahead log",
        _size(found.wal_bytes),
        odd=found.wal_bytes > LARGE_WAL,
        do="A reader has held a transaction for long: find the process that does, and stop it",
    )
    for holder in found.holders:
        says = f"{holder.behind} records behind" + ("" if holder.alive else ", no member is alive")
        stuck = holder.behind > 0 and (not holder.alive or holder.behind > FAR_BEHIND)
        do = "Upkeep waits for it: let it go on, or remove it if it is not used any more"
        yield _judged(f"{holder.kind} {holder.name} on {holder.topic}", says, odd=stuck, do=do)


def _space(folder: Path) -> Line:
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    do = "Free some space: without it appends are refused"
    return _judged("disk", f"{_size(free)} free at {there}", wrong=free < LEAST_FREE, odd=free < LITTLE_FREE, do=do)


def _judged(about: str, says: str, *, wrong: bool = False, odd: bool = False, do: str) -> Line:
    state: State = "error" if wrong else "warning" if odd else "ok"
    return Line(state, about, says, do if wrong or odd else "")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
