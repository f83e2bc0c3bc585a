"""The current fails at any moment: what was acknowledged is there, though only what was synced need be.

A run is recorded, act by act. Before each sync (in between, nothing durable changes) and at many other acts it is cut
off: the folder is laid out as it may be found then, strictly or with some luck, and `Expected` looks at it.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.testing.power_cut import RecordedDisk
from headwater.testing.preloaded import can_build
from headwater.testing.recording_disk import Kind, environment, read_journal
from tests.crash.recorded_run import RUNS
from tests.crash.survivors import Expected

ROOT = Path(__file__).parents[2]
STEP = int(os.environ.get("HEADWATER_FAULT_STEP", "3"))
"""How much is left out; 1 cuts at every single act."""


class Recording:
    """A run and its cuts. Each is laid out in the place of the run's own folder, whose path archived chunks name."""

    def __init__(self, folder: Path) -> None:
        self.acts = read_journal(folder / "journal")
        self.world = folder / "world"
        self.uncut = folder / "uncut"
        self.cuts = 0
        self.world.rename(self.uncut)

    def findings(self, *, step: int) -> Iterator[str]:
        """Strict cuts before every so many syncs, lucky ones before every so many acts, and one at the end."""
        disk, expected, syncs = RecordedDisk(str(self.world)), Expected(), 0
        for number, act in enumerate(self.acts):
            syncs += act.kind is Kind.SYNCED
            if act.kind is Kind.SYNCED and syncs % step == 0:
                yield from self._cut(disk, expected, f"before act {number}, strictly")
            if number % (step * step) == 0:
                chance = random.Random(number)
                yield from self._cut(disk, expected, f"before act {number}, with luck", chance)
            disk.apply(act)
            expected.take(act)
        yield from self._cut(disk, expected, "at the end")

    def findings_when_told(self) -> Iterator[str]:
        """Strict cuts at the very moments when something is acknowledged: whatever is lost later, is lost then."""
        disk, expected = RecordedDisk(str(self.world)), Expected()
        for number, act in enumerate(self.acts):
            disk.apply(act)
            expected.take(act)
            if act.kind is Kind.MARK and "done" in act.marked:
                yield from self._cut(disk, expected, f"after act {number}, when it was told")

    def _cut(
        self, disk: RecordedDisk, expected: Expected, where: str, chance: random.Random | None = None
    ) -> Iterator[str]:
        self.cuts += 1
        shutil.rmtree(self.world, ignore_errors=True)
        self.world.mkdir()
        disk.lay_out(self.world, chance=chance)
        under_way = expected.under_way.get("begin", "nothing")
        for found in expected.findings(self.world):
            yield f"{where}, with {under_way} under way: {found}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    folder = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, "-m", "tests.crash.recorded_run", str(folder), *RUNS]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: Recording(folder / name) for name in RUNS}


@pytest.fixture(autouse=True)
def _compiler(must_have: Callable[[bool, str], None]) -> None:
    must_have(can_build(), "no C compiler: apt install gcc")


def test_the_recording_misses_nothing_that_was_written(recorded: dict[str, Recording], tmp_path: Path) -> None:
    run = recorded["everything"]
    disk = RecordedDisk(str(run.world))
    for act in run.acts:
        disk.apply(act)
    disk.lay_out_uncut(tmp_path)
    there = {str(path.relative_to(run.uncut)) for path in run.uncut.rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == there
    assert filecmp.cmpfiles(run.uncut, tmp_path, there, shallow=False)[1:] == ([], [])


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(recorded: dict[str, Recording]) -> None:
    run = recorded["everything"]
    assert list(run.findings(step=STEP)) == []
    print(f"{run.cuts} cuts of {len(run.acts)} acts")  # noqa: T201


def test_a_repeated_append_is_acknowledged_only_when_it_is_durable(recorded: dict[str, Recording]) -> None:
    run = recorded["killed and repeated"]
    told = [act.marked for act in run.acts if act.kind is Kind.MARK and b"repeated" in act.data]
    assert {mark["repeated"] for mark in told} == {True, False}, "some had been there, some had not"
    assert list(run.findings_when_told()) == []


@pytest.mark.parametrize(
    ("without_sync", "loss"),
    [
        ("commits", "topics ['clicks'] are gone"),
        ("chunks", "is damaged"),
        ("names of chunks", "its file is missing"),
        ("names of folders", "its file is missing"),
        ("the log itself", "the log's folder is gone"),
        ("removals", "was removed for good, and is back"),
        ("archive", "its file is missing"),
        ("truncated WAL", "was forgotten, and catalog.db-wal has it"),
        ("WAL that was left", "was acknowledged and is lost"),
    ],
)
def test_a_missing_sync_is_found(without_sync: str, loss: str, recorded: dict[str, Recording]) -> None:
    assert any(loss in found for found in recorded[without_sync].findings_when_told())
