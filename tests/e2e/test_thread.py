"""The test that matters: records come in over HTTP and straight into the log while the app is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headwater as hw
from headwater.log import Topic
from tests.e2e.running import Shop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RECORDS = 200_000
KILLS = 5
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SQL = """
SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "data")
    yield made
    made.end_group()
    print(made.words.read_text()[-6000:])  # noqa: T201  (shown if the test fails)


def click(number: int, chance: random.Random) -> dict[str, Any]:
    """Its time is unique: by it every record is accounted for."""
    at = EPOCH + timedelta(microseconds=number)
    return {"user_id": chance.randrange(3000), "page": f"/{chance.randrange(200)}", "at": at.isoformat()}


class Writers(threading.Thread):
    """Half of the records over HTTP, each batch until acknowledged, half straight into the log; users change too."""

    def __init__(self, shop: Shop, seed: int) -> None:
        super().__init__()
        self._shop, self._chance = shop, random.Random(seed)
        self.failure: BaseException | None = None
        self.written = 0
        self.kills = 0
        """How many there were: after each there is more to come, however fast the app is."""
        self.hurry = threading.Event()

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001  (handed to the test's own thread)
            self.failure = error

    def went_on(self) -> bool:
        """True; raises what stopped the writers, without whom nothing more would come."""
        if self.failure is not None:
            raise self.failure
        return True

    def _write(self) -> None:
        log = hw.open(f"file:{self._shop.folder}")
        clicks, users = Topic(log, log.topic("clicks")), Topic(log, log.topic("users"))
        countries: dict[int, str] = {}
        give_up_at = time.monotonic() + 800
        batch = 400
        for sequence, number in enumerate(range(0, RECORDS, 2 * batch)):
            rows = [click(number + n, self._chance) for n in range(2 * batch)]
            clicks.append(rows[:batch])
            users.append(self._user_changes(countries))
            path = f"/topics/clicks/records?producer=e2e&sequence={sequence}"
            self._shop.post(path, rows[batch:], give_up_at=give_up_at)
            self.written = number + 2 * batch
            self.hurry.wait(0.5)  # spread over the kills, then as fast as it goes
            while self.written > RECORDS * (self.kills + 1) / (KILLS + 1) and not self.hurry.wait(0.1):
                assert time.monotonic() < give_up_at
        log.close()

    def _user_changes(self, countries: dict[int, str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for _ in range(60):
            user_id = self._chance.randrange(3000)
            if user_id in countries:
                rows.append({"user_id": user_id, "country": countries[user_id], "_weight": -1})
            countries[user_id] = self._chance.choice("abcdefgh")
            rows.append({"user_id": user_id, "country": countries[user_id], "_weight": 1})
        return rows


def test_killed_again_and_again_nothing_is_lost_and_nothing_counts_twice(
    shop: Shop, until: Callable[..., None]
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    shop.start()
    until(lambda: (shop.folder / "catalog.db").exists() and _has_topics(shop.folder), what="the topics")
    writers = Writers(shop, seed)
    writers.start()
    try:
        covered = ""
        for kill in range(KILLS):
            if kill > 0:  # the first kill comes somewhere during the start, the others between and inside of batches
                until(
                    lambda known=covered: writers.went_on() and shop.position() not in ("", known),
                    within_s=180,
                    what="a batch",
                )
            time.sleep(chance.uniform(0, 4))  # the random moment, not a wait for anything
            covered = shop.position() or covered
            shop.kill(whole_group=kill % 2 == 0)
            writers.kills += 1
            shop.start()
        writers.hurry.set()
        writers.join(300)
        assert writers.failure is None, writers.failure
        assert writers.written == RECORDS
        log = hw.open(f"file:{shop.folder}")
        goal = str(log.snapshot(["clicks", "users"]).position)
        until(lambda: shop.position() != "", within_s=120, what="the last start")
        served = shop.get("/views/by_page", after=goal, timeout_s="240", limit="10000")["rows"]
    finally:
        writers.hurry.set()

    clicks, changes, view = (Topic(log, log.topic(name)).read() for name in ("clicks", "users", "by_page"))
    times = [int((at - EPOCH) / timedelta(microseconds=1)) for at in clicks["at"].to_pylist()]
    assert sorted(times) == list(range(RECORDS)), "every record is in the log exactly once"

    oracle = duckdb.connect()
    oracle.register("clicks", clicks)
    oracle.register("changes", changes)
    oracle.register("view", view)
    oracle.execute("CREATE VIEW users AS SELECT user_id, country FROM changes GROUP BY ALL HAVING sum(_weight) > 0")
    expected = sorted(oracle.execute(SQL).fetchall())
    assert len(expected) == 200
    summed = "SELECT page, views, visitors, countries FROM view GROUP BY ALL HAVING sum(_weight) <> 0"
    assert sorted(oracle.execute(summed).fetchall()) == expected, "the view's topic"
    assert sorted(tuple(row.values()) for row in served) == expected, "the view as served"


def _has_topics(folder: Path) -> bool:
    log = hw.open(f"file:{folder}")
    try:
        return {"clicks", "users"} <= {spec.name for spec in log.topics()}
    finally:
        log.close()
