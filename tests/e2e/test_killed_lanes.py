"""An app with both lanes, killed at random moments while records come in: what is derived is what the log says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.records import schema_of

KILLS = int(os.environ.get("HEADWATER_APP_KILLS", "2"))
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300 + 120 * KILLS)]
HEADWATER = Path(sys.executable).with_name("headwater")


class Lanes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self.folder.with_name("words.txt").open("ab") as words:
            self._process = subprocess.Popen(
                [HEADWATER, "run", Path(__file__).with_name("two_lanes.py"), "--http", "off", *more],
                env={**os.environ, "LANES_LOG": f"file:{self.folder}"},
                stderr=words,
                start_new_session=True,
            )
        return self._process

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def test_killed_at_random_moments_both_lanes_are_right(tmp_path: Path, until: Callable[..., None]) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    lanes = Lanes(tmp_path / "data")
    log = hw.open(f"file:{lanes.folder}")
    columns = {"id": "int64", "user_id": "int64", "price": "float64"}
    buys = Topic(log, log.create(TopicSpec("buys", schema_of(columns), key=("user_id",))))
    columns = {"user_id": "int64", "name": "string"}
    users = Topic(log, log.create(TopicSpec("users", schema_of(columns), key=("user_id",), kind="table", upsert=True)))
    users.upsert([{"user_id": user, "name": f"user {user}"} for user in range(50)])
    made = 0

    def more(count: int) -> None:
        nonlocal made
        rows = [{"id": made + n, "user_id": chance.randrange(50), "price": chance.random()} for n in range(count)]
        buys.append(rows)
        made += count

    def batches() -> int:
        return sum(1 for spec in log.topics() for name in ("named", "spent") if spec.name == name) and sum(
            extent.end for name in ("named", "spent") for extent in log.extents(name).values()
        )

    try:
        for _ in range(KILLS):
            more(3000)
            known = batches()
            lanes.start()
            until(lambda known=known: batches() > known, within_s=240, what="a batch")
            more(3000)
            time.sleep(chance.uniform(0, 3))  # the random moment, not a wait for anything
            lanes.kill()
        more(1000)
        assert lanes.start("--caught-up").wait(timeout=280) == 0
    finally:
        lanes.end()

    given, named, spent = (Topic(log, log.topic(name)).read() for name in ("buys", "named", "spent"))
    oracle = duckdb.connect()
    oracle.register("buys", given)
    oracle.register("named", named)
    oracle.register("spent", spent)
    assert given.num_rows == made
    joined = oracle.execute("SELECT id, name FROM named ORDER BY id").fetchall()
    assert joined == oracle.execute("SELECT id, 'user ' || user_id FROM buys ORDER BY id").fetchall()
    totals: dict[int, tuple[float, int]] = {}
    for row in sorted(given.to_pylist(), key=lambda row: (row["_partition"], row["_offset"])):
        total, n = totals.get(row["user_id"], (0.0, 0))
        totals[row["user_id"]] = total + row["price"], n + 1
    summed = "SELECT user_id, total, n FROM spent GROUP BY ALL HAVING sum(_weight) <> 0 ORDER BY user_id"
    assert oracle.execute(summed).fetchall() == [(user, *total) for user, total in sorted(totals.items())]
    log.close()
