"""Several processes append and follow; writers are killed and stopped at random moments; what was recorded holds."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from headwater.log.embedded import EmbeddedLog
from headwater.testing.history import Client, History, Recorder, check
from tests.crash.cast import TOPICS, follow, prepare, write_once, write_plainly

KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""200 in the long mode: make prove."""
LINES: dict[str, Callable[..., None]] = {"plain": write_plainly, "once": write_once, "again": write_once}
FORKS = multiprocessing.get_context("forkserver")


class Play:
    """Followers, and of each line of writers the one that is alive."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.histories = folder / "histories"
        self.histories.mkdir()
        prepare(self.log)
        FORKS.set_forkserver_preload(["tests.crash.cast"])
        self.stop = FORKS.Event()
        self.followers = [self._start(follow, f"follower.{number}", self.stop) for number in range(2)]
        self.started: list[BaseProcess] = []
        self.alive = {line: self.succeed(line) for line in LINES}
        self.overtaken: dict[str, BaseProcess] = {}

    def succeed(self, line: str) -> BaseProcess:
        writer = self._start(LINES[line], f"{line}.{len(self.started)}", line)
        self.started.append(writer)
        return writer

    def let_go(self, line: str, writer: BaseProcess) -> None:
        """One that was stopped goes on beside its successor, until another one of its line does: no crowd of them."""
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGCONT)
        if line in self.overtaken:
            self.overtaken[line].kill()
        self.overtaken[line] = writer

    def written(self, writer: BaseProcess) -> int:
        """How far it is: the size of its history."""
        file = self.histories / writer.name
        return file.stat().st_size if file.exists() else 0

    def end(self) -> History:
        for writer in self.started:
            writer.kill()
            writer.join(30)
            assert writer.exitcode in (0, -signal.SIGKILL), f"{writer.name} has failed"
        self.stop.set()
        for follower in self.followers:
            follower.join(30)
            assert follower.exitcode == 0, f"{follower.name} has failed"
        log = EmbeddedLog(self.log)
        Client(log, Recorder(self.histories / "drain", "drain"), TOPICS).poll(final=True)
        log.close()
        return History.read(*self.histories.iterdir())

    def _start(self, work: Callable[..., None], process: str, given: Any) -> BaseProcess:
        given = (str(self.log), str(self.histories), process, given)
        started = FORKS.Process(target=work, args=given, name=process, daemon=True)
        started.start()
        return started


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    play = Play(tmp_path)
    yield play
    for process in (*play.started, *play.followers):
        process.kill()
        process.join(30)


@pytest.mark.timeout(1800)
def test_whatever_happens_to_writers_the_history_holds(play: Play, until: Callable[..., None]) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    for number in range(KILLS):
        line = chance.choice([*LINES])
        writer, enough = play.alive[line], chance.randint(300, 8_000)
        until(lambda at=writer, enough=enough: play.written(at) > enough or not at.is_alive(), within_s=120)
        assert writer.pid is not None
        if number % 3 != 2:
            writer.kill()
            play.alive[line] = play.succeed(line)
        else:  # stopped, replaced, continued: outside of a transaction it is a zombie, inside it holds its successor up
            os.kill(writer.pid, signal.SIGSTOP)
            successor = play.alive[line] = play.succeed(line)
            held_up = time.monotonic() + 1
            until(lambda at=successor, end=held_up: play.written(at) > 0 or time.monotonic() > end)
            play.let_go(line, writer)
    history = play.end()
    print(f"{len(history.operations)} operations, {len(history.acknowledged)} appends acknowledged")  # noqa: T201
    assert {operation.outcome for operation in history.appends} >= {"ok", "info"}
    assert check(history) == []
