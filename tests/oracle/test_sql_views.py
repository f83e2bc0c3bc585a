"""SQL views on Spark: after batches, a batch that runs twice, and a restart, they are DuckDB's answer over the log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headwater as hw
from headwater.log import Topic
from headwater.log.protocol import Progress
from headwater.process.audit import audit
from headwater.process.keyed.lane import KeyedLane
from headwater.process.sql.planner import plan_view
from headwater.process.ticks import TICKS, Ticker, earliest
from tests.oracle.test_keyed_operators import Run
from tests.property.changes import INPUTS, Prefix, answer, prefixes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VIEWS = {
    "two levels, ties and sums of floats": """
        SELECT u.country, count(*) AS n, sum(c.price) AS total, max(c.n) AS most, list(c.id) AS ids
        FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY u.country""",
    "the rate of its time, and the first three of all": """
        SELECT c.id, c.at, r.rate FROM clicks c LEFT JOIN rates FOR SYSTEM_TIME AS OF c.at AS r ON r.country = c.page
        ORDER BY c.at DESC, c.id LIMIT 3""",
    "sessions, counted by their length": """
        SELECT n, count(*) AS sessions FROM (
          SELECT user_id, window_start, count(*) AS n FROM SESSION(clicks, at, user_id, INTERVAL '20 seconds')
          GROUP BY user_id, window_start) GROUP BY n""",
    "rows as they come": "SELECT id, page, n FROM clicks WHERE n IS NOT NULL",
}


class Fed:
    """Topics that are told prefixes of random changes."""

    def __init__(self, log: hw.Log, seed: int) -> None:
        self._topics = {name: Topic(log, log.create(spec)) for name, spec in INPUTS.items()}
        self._prefixes = prefixes(seed, 12)
        self.now: Prefix | None = None

    def feed(self, batches: int) -> None:
        for _ in range(batches):
            self.now = next(self._prefixes)
            for name, rows in self.now.pushed.items():
                if rows.num_rows:
                    self._topics[name].append(rows)


@pytest.fixture
def views(
    log: hw.Log, tmp_path: Path, spark: SparkSession, until: Callable[..., None]
) -> Iterator[Callable[[str], Run]]:
    made: list[Run] = []

    def start(sql: str) -> Run:
        plan = replace(plan_view(f"v{len(made)}", sql, INPUTS), buckets=2)
        made.append(Run(plan, log, tmp_path / "pipelines", spark, until))
        return made[-1]

    yield start
    for run in made:
        run.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_the_answer_over_the_log(name: str, log: hw.Log, views: Callable[[str], Run]) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    fed = Fed(log, seed)
    run = views(VIEWS[name])
    fed.feed(3)
    run.start()
    run.catch_up()
    is_right(run, log, fed)
    fed.feed(2)
    run.catch_up()
    run.run_last_batch_again()
    fed.feed(3)
    run.catch_up()
    is_right(run, log, fed)


def is_right(run: Run, log: hw.Log, fed: Fed) -> None:
    assert run.pipeline is not None
    assert fed.now is not None
    told = audit(log, KeyedLane(run.plan), topic=run.pipeline.topic, producer=run.pipeline.producer)
    assert told is not None
    assert (told.missing, told.surplus) == ((), ())
    assert told.rows == len(answer(run.plan.oracle, fed.now.held)), "the audit sees what the topics were told"


@pytest.mark.timeout(900)
def test_rows_leave_by_ticks_that_come_when_they_are_due(
    log: hw.Log, views: Callable[[str], Run], until: Callable[..., None]
) -> None:
    log.create(TICKS)
    fed = Fed(log, 11)
    run = views("SELECT id, page, at FROM clicks WHERE at > now() - INTERVAL '1 minute'")
    fed.feed(3)
    run.start()
    assert run.pipeline is not None
    clock = [int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000]
    ticker = Ticker(log, [run.pipeline], clock=lambda: clock[0])
    ticker.tick()
    run.catch_up()
    before = _sound(run, log)
    assert before == len(answer("FROM clicks", fed.now.held if fed.now else {}))
    due = earliest(run.home)
    assert due is not None
    ticks = Topic(log, log.topic(TICKS.name))
    ticker.tick_when_due()
    assert ticks.read().num_rows == 1, "nothing is due yet"
    clock[0] = due

    def ticked() -> bool:
        ticker.tick_when_due()
        return bool(ticks.read().num_rows == 2)

    until(ticked, within_s=60, what="a tick, now that a row is to leave")
    run.catch_up()
    run.run_last_batch_again()
    fed.feed(1)
    run.catch_up()
    now = {**(fed.now.held if fed.now else {}), TICKS.name: ticks.read().select(["at"])}
    assert _sound(run, log) == len(answer(run.plan.oracle, now))
    assert earliest(run.home) != due


def _sound(run: Run, log: hw.Log) -> int:
    """How many rows the view has, which are those that it should have."""
    assert run.pipeline is not None
    told = audit(log, KeyedLane(run.plan), topic=run.pipeline.topic, producer=run.pipeline.producer)
    assert told is not None
    assert (told.missing, told.surplus) == ((), ())
    return told.rows


def test_the_audit_catches_a_row_too_many_and_one_too_few(log: hw.Log, views: Callable[[str], Run]) -> None:
    fed = Fed(log, 7)
    run = views("SELECT page, count(*) AS n FROM clicks GROUP BY page")
    fed.feed(4)
    run.start()
    run.catch_up()
    is_right(run, log, fed)
    assert run.pipeline is not None
    run.stop()
    topic = Topic(log, log.topic(run.pipeline.topic))
    row = topic.read().select(["page", "n"]).slice(0, 1)
    wrong = pa.concat_tables([row, row]).append_column("_weight", pa.array([-1, 1]))
    wrong = wrong.set_column(1, "n", pa.array([row["n"][0].as_py(), 12345], pa.int64()))
    topic.append(wrong)
    covered = log.covered(run.pipeline.producer)
    assert covered is not None
    producer = log.begin(run.pipeline.producer)
    end = covered.progress.end
    log.append([], producer=producer, sequence=covered.sequence + 1, progress=Progress(end, end))
    told = audit(log, KeyedLane(run.plan), topic=run.pipeline.topic, producer=run.pipeline.producer)
    assert told is not None
    assert not told.sound
    assert [each["n"] for each in told.surplus] == [12345]
