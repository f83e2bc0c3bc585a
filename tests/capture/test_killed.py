"""C1 through kill -9, of the capture and of the server, under load: the topics replay to exactly the tables."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import headwater as hw
from headwater.errors import SourceLost, codes
from headwater.log.position import AppendNumber
from headwater.testing.postgres import PostgresServer, binaries
from headwater.testing.server import LocalServer
from tests.capture.load import TABLES, AnyLoad, Load
from tests.capture.replay import assert_same

pytestmark = pytest.mark.postgres

SEED = int(os.environ.get("HEADWATER_SEED", "7"))
KILLS = int(os.environ.get("HEADWATER_CAPTURE_KILLS", "5"))
MOST_STEPS = 5000
"""Transactions between two kills."""
PAUSE_S = 0.02
"""From one to the next, if nothing is appended meanwhile."""
CLI = "from headwater.cli.main import main; main()"

APP = """
import headwater as hw

app = hw.App("bank", log={log!r})
app.capture({url!r}, tables=["accounts", "branches"], settings=hw.CaptureSettings(heartbeat_s=0.5))
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own: it is killed."""
    if binaries() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer({"wal_sender_timeout": "5s"}) as running:
        yield running


class Captured:
    """`headwater capture run` in a process of its own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.words = file.with_suffix(".words")
        self.start()

    def start(self, *given: str) -> None:
        command = [sys.executable, "-c", CLI, "capture", "run", str(self._file), *given]
        with self.words.open("a") as words:
            self.process = subprocess.Popen(command, stdout=words, stderr=words)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def goes_on(self) -> None:
        """One that starts while the server does not answer ends, as with a wrong address: it is started again. Nothing
        else may end it."""
        ended = self.process.poll()
        if ended is not None:
            assert ended == codes(SourceLost(source="", why=""))[1], self.words.read_text()
            self.start()

    def finish(self) -> None:
        self.kill()
        self.start("--caught-up")
        assert self.process.wait(120) == 0, self.words.read_text()


def kill_again_and_again(
    tmp_path: Path, server: LocalServer, load: AnyLoad, url: str, before_kill: Callable[[], None] = lambda: None
) -> hw.Log:
    """The capture at any moment, and once the server, while the load goes on; then until it has caught up."""
    chosen = random.Random(SEED)
    file = tmp_path / "bank.py"
    file.write_text(APP.format(log=f"file:{tmp_path / 'log'}", url=url))
    for _ in range(50):
        load.step()
    captured = Captured(file)
    try:
        log = hw.open(f"file:{tmp_path / 'log'}")
        appended = AppendNumber(0)
        for kill in range(KILLS):
            # at any moment: amid the start, the snapshot, or some appends later
            before, further = appends(log), chosen.choice([0, 1, 2, 5, 20])
            for step in range(MOST_STEPS):
                load.step()
                captured.goes_on()
                if appends(log) >= before + further and step > chosen.randint(0, 60):
                    break
                appended = log.wait(appended, PAUSE_S)  # as fast as it can, the load would only keep it from starting
            else:
                raise AssertionError(f"nothing is appended any more: {captured.words.read_text()[-2000:]}")
            if kill == KILLS // 2:
                server.kill()
                server.start()
            else:
                before_kill()
                captured.kill()
                captured.start()
        captured.finish()
    finally:
        captured.kill()
    assert load.committed > KILLS
    return log


def test_topics_are_the_tables_after_kills_of_capture_and_server(server: PostgresServer, tmp_path: Path) -> None:
    url = server.url()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement.encode())
    with closing(Load(url, SEED)) as load, closing(kill_again_and_again(tmp_path, server, load, url)) as log:
        assert_same(log, url, "accounts", "branches")


def appends(log: hw.Log) -> int:
    covered = log.covered("capture.bank")
    return covered.sequence if covered is not None else -1
