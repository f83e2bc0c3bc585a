"""Writers killed, stopped and continued: nothing acknowledged is lost, nothing counts twice, zombies are refused."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import Busy
from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.testing.log_contract import CLICKS
from tests.crash.writers import append_numbers, append_when_told, click, hold_the_transaction

KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""200 in the long mode: make prove."""
SPAWN = multiprocessing.get_context("spawn")
STRIDE = 10_000_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_writers_killed_at_random_moments_lose_nothing_they_were_told_is_safe(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    folder = tmp_path / "log"
    told: dict[int, int] = {}
    for kill in range(KILLS):
        first = kill * STRIDE
        acknowledged = SPAWN.Value("q", first)
        writer = SPAWN.Process(target=append_numbers, args=(str(folder), first, acknowledged, kill % 2 == 0))
        writer.start()
        until(lambda at=acknowledged, first=first: at.value > first, what="a first append")
        time.sleep(chance.uniform(0, 0.4))  # the random moment, not a wait for anything
        writer.kill()
        writer.join()
        told[first] = acknowledged.value
    log = hw.open(f"file:{folder}")
    numbers = sorted(Topic(log, log.topic("clicks")).read()["user_id"].to_pylist())
    for first, end in told.items():
        own = [number for number in numbers if first <= number < first + STRIDE]
        assert own == list(range(first, first + len(own))), "a whole prefix, each once"
        assert len(own) - (end - first) in (0, 1, 2500), "all acknowledged ones, and at most the one under way"


def test_a_writer_stopped_outside_of_its_transaction_is_fenced_when_it_goes_on(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    ready, go_on, outcome = SPAWN.Event(), SPAWN.Event(), SPAWN.Value("i", 0)
    zombie = SPAWN.Process(target=append_when_told, args=(folder, ready, go_on, outcome))
    zombie.start()
    assert ready.wait(30)
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGSTOP)
    log = hw.open(f"file:{folder}")
    topic = Topic(log, log.create(CLICKS))
    topic.append([click(3)], producer=log.begin("zombie"), sequence=1)
    os.kill(zombie.pid, signal.SIGCONT)
    go_on.set()
    zombie.join(30)
    assert outcome.value == 2, "fenced"
    assert sorted(topic.read()["user_id"].to_pylist()) == [1, 3]


def test_a_writer_stopped_inside_of_its_transaction_makes_others_answer_busy_with_its_pid(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    folder = tmp_path / "log"
    inside, go_on = SPAWN.Value("i", 0), SPAWN.Event()
    holder = SPAWN.Process(target=hold_the_transaction, args=(str(folder), inside, go_on))
    holder.start()
    until(lambda: inside.value != 0, what="the holder's transaction")
    os.kill(inside.value, signal.SIGSTOP)
    log = EmbeddedLog.__new__(EmbeddedLog)
    with pytest.raises(Busy) as caught:
        log.__init__(folder, patience_s=0.2)  # type: ignore[misc]
    assert caught.value.holder == holder.pid
    assert f"process {holder.pid} has been writing to" in str(caught.value)
    os.kill(inside.value, signal.SIGCONT)
    go_on.set()
    holder.join(30)
    other = EmbeddedLog(folder)
    Topic(other, other.topic("clicks")).append([click(1)])
