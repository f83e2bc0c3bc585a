"""Long acts show a bar to people who watch, on a real terminal, and leave nothing of it behind."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import backup, topic, upkeep, verify
from headwater.cli.progress import progress_bar
from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.testing.log_contract import CLICKS, click

ESCAPE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def screen(written: str) -> list[str]:
    """What a terminal shows in the end: a line a row. Knows as much as a progress bar uses."""
    rows, row, column = [""], 0, 0
    for given, act, control, text in ESCAPE.findall(written):
        if control == "\r":
            column = 0
        elif control == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif act == "A":
            row = max(0, row - int(given or 1))
        elif act == "K":
            rows[row] = "" if given == "2" else rows[row][:column]
        elif text:
            rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + len(text) :]
            column += len(text)
    return rows


class Terminal:
    """A pseudo-terminal, and all that was written to it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        self._written = bytearray()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        while True:
            try:
                some = os.read(self._master, 65536)
            except OSError:  # Linux: nobody has the other end open any more
                return
            if not some:
                return
            self._written += some

    def close(self) -> str:
        os.close(self.slave)
        self._reading.join()
        os.close(self._master)
        return self._written.decode()


def on_a_terminal(act: Callable[[], Any]) -> str:
    """Do it with a terminal as this process's standard error; what was written there.

    Not a fixture: pytest puts its own standard error in place between a fixture and its test.
    """
    made = Terminal()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(os.dup(made.slave), "w") as error:
        for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "100"), ("LINES", "30")):
            patch.setenv(name, value)
        patch.setattr(sys, "stderr", error)
        try:
            act()
            assert sys.stderr is error, "it was a terminal until the end"
            assert sys.stderr.isatty()
        finally:
            error.flush()
    return made.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    log = EmbeddedLog(tmp_path / "log")
    clicks = Topic(log, log.create(CLICKS))
    for number in range(12):
        clicks.append([click(number)])
    log.close()
    backup.backup(to=tmp_path / "made", log=log.url, as_json=True)
    return log.url


def acts(url: str, folder: Path) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Each with the word that its bar begins with."""
    return {
        "verify": ("verifying", lambda **how: verify.verify(log=url, **how)),
        "backup": ("backing up", lambda **how: backup.backup(to=folder / "copy", log=url, **how)),
        "restore": (
            "restoring",
            lambda **how: backup.restore(source=folder / "made", to=f"file:{folder / 'again'}", **how),
        ),
        "upkeep": ("keeping up", lambda **how: upkeep.upkeep(log=url, grace_s=0, **how)),
        "forget": ("forgetting", lambda **how: topic.forget("clicks", ["user_id=3"], log=url, yes=True, **how)),
    }


ACTS = ["verify", "backup", "restore", "upkeep", "forget"]


@pytest.mark.parametrize("name", ACTS)
def test_a_long_act_shows_a_bar_on_a_terminal_and_takes_it_away(
    name: str, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    word, act = acts(url, tmp_path)[name]
    written = on_a_terminal(act)
    assert word in written
    assert "".join(screen(written)).strip() == ""
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1, "the cursor is there again"
    assert word not in capfd.readouterr().out


@pytest.mark.parametrize("name", ACTS)
def test_with_json_the_terminal_stays_empty(
    name: str, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    act = acts(url, tmp_path)[name][1]
    capfd.readouterr()
    assert on_a_terminal(lambda: act(as_json=True)) == ""
    assert capfd.readouterr().out.startswith(("{", "["))


@pytest.mark.parametrize("name", ACTS)
def test_without_a_terminal_nothing_is_written(
    name: str, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    acts(url, tmp_path)[name][1]()
    assert capfd.readouterr().err == ""


def test_a_bar_goes_also_when_the_act_fails() -> None:
    def fail() -> None:
        with suppress(RuntimeError), progress_bar("failing", as_json=False) as advance:
            assert advance is not None
            advance(1, 2)
            raise RuntimeError

    written = on_a_terminal(fail)
    assert "failing" in written
    assert "".join(screen(written)).strip() == ""


def test_the_check_of_the_screen_sees_what_is_left_there() -> None:
    assert screen("\x1b[?25lhalf \x1b[31m50%\x1b[0m") == ["half 50%"]
    assert screen("half\r\x1b[2Kdone\n") == ["done", ""]
    assert screen("one\r\ntwo\x1b[1A\r\x1b[2K") == ["", "two"]


def test_the_command_itself_on_a_terminal(url: str) -> None:
    made = Terminal()
    ours = "from headwater.cli.main import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", ours, "verify", "--log", url],
        stdout=subprocess.PIPE,
        stderr=made.slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
        text=True,
        check=True,
        timeout=120,
    )
    written = made.close()
    assert told.stdout.startswith("sound: 12 records")
    assert "verifying" in written
    assert "".join(screen(written)).strip() == ""
