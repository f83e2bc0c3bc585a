"""Forgetting everywhere, killed at its Nth write, sync, rename, unlink or creation; called again, it finishes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.testing.faulty_disk import Fault, arm, can_build, disarm, environment
from tests.unit.planted import ERIKA, files_with_canary, make, others

ROOT = Path(__file__).parents[2]
CASES = int(os.environ.get("HEADWATER_KILLS", "8"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(100 + 10 * CASES)]


def test_killed_anywhere_and_called_again_it_leaves_nothing(
    tmp_path: Path, must_have: Callable[[bool, str], None]
) -> None:
    must_have(can_build(), "no C compiler: apt install gcc")
    make(tmp_path / "template")
    command = [sys.executable, "-m", "tests.crash.test_killed_forgetting", str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=60 + 5 * CASES, check=False
    )
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.glob("killed-*"))
    assert len(folders) == CASES
    half_done = 0
    for folder in folders:
        half_done += (folder / "forgotten").exists() is False and bool(files_with_canary(folder))
        log = hw.open(f"file:{folder}")
        hw.forget(log, "clicks", keys=[ERIKA])
        assert files_with_canary(folder) == set(), folder.name
        assert others(log) == sorted(user for user in [*range(3000), *range(10)] if user != 7), folder.name
        log.close()
    assert half_done > CASES // 2, "they were killed in the middle"


def main(work: Path) -> None:
    """Under the faulty disk: each case is a fork of this process, on a copy of the folder."""
    acts = _acts(work, 0)
    for case in range(CASES):
        _acts(work, 1 + case * acts // CASES)


def _acts(work: Path, nth: int) -> int:
    """How many acts on files it takes; it dies at the nth, if that is not 0."""
    folder = work / (f"killed-{nth:05}" if nth else "counted")
    shutil.copytree(work / "template", folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        log = hw.open(f"file:{folder}")
        arm(folder, nth, Fault.DIES)
        hw.forget(log, "clicks", keys=[ERIKA])
        os.write(writing, str(disarm()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        counted = told.read()
    os.waitpid(child, 0)
    return int(counted or 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
