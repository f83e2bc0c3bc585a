"""Exactly once through kill -9 and rotation: after any number of both, the topic has each line that was written,
once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.position import AppendNumber

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("HEADWATER_SEED", "7"))
KILLS = int(os.environ.get("HEADWATER_TAIL_KILLS", "4"))
CLI = "from headwater.cli.main import main; main()"
APP = """
import headwater as hw

app = hw.App("files", log={log!r})
app.capture("tail:{folder}/*.log*", into="lines")
"""


class Written:
    """Files as a program and its logrotate leave them, and all lines that were ever written."""

    def __init__(self, folder: Path, chosen: random.Random) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self._random = chosen

    def step(self) -> None:
        """Some lines, the last of them perhaps not to its end; now and then a rotation by rename."""
        if self._random.random() < 0.15 and (self.folder / "moved.log").exists():
            self._rename()
        for name in ("moved.log", "cut.log"):
            text = ""
            for _ in range(self._random.randint(0, 40)):
                line = f"{name} {len(self.lines)} " + "é" * self._random.randint(0, 30)
                self.lines.append(line)
                text += line + "\n"
            middle = self._random.randint(0, len(text))
            self._write(name, text[:middle])
            self._write(name, text[middle:])

    def cut(self) -> None:
        """As `copytruncate` does."""
        shutil.copy(self.folder / "cut.log", self.folder / "copied")
        os.truncate(self.folder / "cut.log", 0)

    def _rename(self) -> None:
        numbers = sorted((int(path.suffix[1:]) for path in self.folder.glob("moved.log.*")), reverse=True)
        for number in numbers:
            (self.folder / f"moved.log.{number}").rename(self.folder / f"moved.log.{number + 1}")
        (self.folder / "moved.log").rename(self.folder / "moved.log.1")

    def _write(self, name: str, text: str) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(text.encode())


def test_every_line_once_after_kills_and_rotations(
    tmp_path: Path, until: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    chosen = random.Random(SEED)
    folder = tmp_path / "files"
    folder.mkdir()
    file = tmp_path / "app.py"
    file.write_text(APP.format(log=f"file:{tmp_path / 'log'}", folder=folder))
    written = Written(folder, chosen)
    log = hw.open(f"file:{tmp_path / 'log'}")
    request.addfinalizer(log.close)
    words = (tmp_path / "words").open("ab")
    request.addfinalizer(words.close)

    def start(*given: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CLI, "capture", "run", str(file), *given]
        return subprocess.Popen(command, stdout=words, stderr=words)

    def captured() -> int:
        there = any(spec.name == "lines" for spec in log.topics())
        return log.snapshot(["lines"]).position.total if there else 0

    def kill(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    appended = AppendNumber(0)
    for turn in range(KILLS):
        process = start()
        request.addfinalizer(lambda process=process: kill(process))
        further = captured() + chosen.choice([0, 1, 200, 1000])  # amid the start, or some appends later
        steps = 0
        while captured() < further or steps < chosen.randint(5, 60):
            assert process.poll() is None, (tmp_path / "words").read_text()
            written.step()
            steps += 1
            appended = log.wait(appended, 0.02)
        if turn == KILLS // 2:
            until(lambda: captured() == len(written.lines), what="all lines in the topic")
            written.cut()
        kill(process)
        for _ in range(chosen.randint(0, 30)):
            written.step()
    process = start("--caught-up")
    assert process.wait(60) == 0, (tmp_path / "words").read_text()
    found = hw.Topic(log, log.topic("lines")).read()["line"].to_pylist()
    assert len(found) == len(set(found))
    assert sorted(found) == sorted(written.lines)
    assert len(list(folder.glob("moved.log.*"))) > KILLS
