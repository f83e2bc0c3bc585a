"""At every write, sync, unlink and creation of every act: the process dies, or the disk says no, once or from then on.

Afterwards, on a good disk: what was acknowledged is there, an act that was not is there whole or not at all, upkeep has
changed nothing that can be read, and doing it again works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.testing.faulty_disk import can_build, environment
from tests.crash.acts import ACTS, LARGE, prepare

ROOT = Path(__file__).parents[2]
CLICKS_BEFORE = 2 * LARGE + 12
STEP = int(os.environ.get("HEADWATER_FAULT_STEP", "3"))
"""After the first few, every so many acts go wrong; 1 tries each."""
WITHIN_S = 3400
pytestmark = pytest.mark.timeout(WITHIN_S + 100)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "log"
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def cases(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """By act. One process forks them all: its imports would cost as much as an act's quick round."""
    work = str(tmp_path_factory.mktemp("cases"))
    command = [sys.executable, "-m", "tests.crash.acts", str(template), work, str(STEP), *ACTS]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, list[dict[str, Any]]] = {act: [] for act in ACTS}
    for line in done.stdout.splitlines():
        case = json.loads(line)
        told[case["act"]].append(case)
    return told


@pytest.mark.parametrize("act", ACTS)
def test_whatever_goes_wrong_nothing_acknowledged_is_lost(
    act: str, template: Path, must_have: Callable[[bool, str], None], request: pytest.FixtureRequest
) -> None:
    must_have(can_build(), "no C compiler: apt install gcc")
    cases = request.getfixturevalue("cases")[act]
    before = readable(template)
    for case in cases:
        check(case, before)
    wrong = [case for case in cases if "died" in case or "error" in case]
    assert len(wrong) > 5, "faults were met"
    assert {case["fault"] for case in wrong} == {"DIES", "IO_ERROR", "NO_SPACE"}


def check(case: dict[str, Any], before: dict[str, list[Any]]) -> None:
    where = f"{case['act']}, {case['fault']} at {case['nth']}"
    if "error" in case:
        assert case["error"] == "StorageFailed", where
    log = EmbeddedLog(Path(case["folder"]))
    try:
        after = readable_in(log)
        expected = ALLOWED[case["act"]](before)
        assert after in expected, where
        if "answer" in case:
            assert after == expected[-1], f"{where}: acknowledged, and not there"
        ACTS[case["act"]](log)
        log.upkeep.collect_garbage(grace_s=-1)
        assert readable_in(log) in [*AGAIN[case["act"]](before), expected[-1]], f"{where}: done again"
    finally:
        log.close()


def readable(folder: Path) -> dict[str, list[Any]]:
    log = EmbeddedLog(folder)
    try:
        return readable_in(log)
    finally:
        log.close()


def readable_in(log: EmbeddedLog) -> dict[str, list[Any]]:
    """Users of clicks in order, and the net rows of the table: what a reader makes of the log."""
    names: dict[str, int] = {}
    for row in Topic(log, log.topic("users")).read().to_pylist():
        names[row["name"]] = names.get(row["name"], 0) + row["_weight"]
    clicks = sorted(Topic(log, log.topic("clicks")).read()["user_id"].to_pylist())
    return {"clicks": clicks, "users": sorted(name for name, weight in names.items() if weight)}


def with_clicks(before: dict[str, list[Any]], clicks: list[int]) -> dict[str, list[Any]]:
    return {**before, "clicks": sorted(clicks)}


def _same(before: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
    return [before]


def _appended(count: int, times: int = 1) -> Callable[[dict[str, list[Any]]], list[dict[str, list[Any]]]]:
    def answer(before: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
        more = list(range(20_000, 20_000 + count))
        return [with_clicks(before, before["clicks"] + more * n) for n in range(times + 1)]

    return answer


def _trimmed(before: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
    return [before, with_clicks(before, [user for user in before["clicks"] if user >= 10_000])]


def _forgotten(before: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
    return [before, with_clicks(before, [user for user in before["clicks"] if user != 7])]


ALLOWED = {
    "append_small": _appended(1),
    "append_large": _appended(2 * LARGE),
    "roll_up": _same,
    "compact": _same,
    "retain": _trimmed,
    "forget": _forgotten,
}
AGAIN = {**ALLOWED, "append_small": _appended(1, 2), "append_large": _appended(2 * LARGE, 2)}
