"""Several views in one Spark query: each is DuckDB's answer over the log, whoever joins, leaves, fails or returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import headwater as hw
from headwater.errors import PipelineFailed
from headwater.log import Topic, TopicSpec
from headwater.process.failpoint import Failpoint
from headwater.process.keyed.lane import KeyedLane
from headwater.process.keyed.plans import fold_plan
from headwater.process.lane import Lane
from headwater.process.pipeline import Pipeline
from headwater.process.query import Query
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",))
BY_PAGE = "SELECT page, count(*) AS n FROM clicks GROUP BY page"
BY_USER = "SELECT user_id, count(DISTINCT page) AS pages FROM clicks GROUP BY user_id"


class House:
    """One query folder; `run` starts the query for the views that are named."""

    def __init__(self, log: hw.Log, root: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.log, self._root, self._spark, self.until = log, root, spark, until
        self.clicks = Topic(log, log.create(CLICKS))
        self._chance = random.Random(7)
        self.query: Query | None = None

    def some_clicks(self, count: int) -> None:
        chance = self._chance
        self.clicks.append([{"user_id": chance.randrange(9), "page": f"/{chance.randrange(5)}"} for _ in range(count)])

    def pipeline(self, lane: Lane, failpoint: Failpoint | None = None) -> Pipeline:
        return Pipeline(lane, self.log, self._root, failpoint=failpoint, query=self._root / "queries" / "shop-1")

    def run(self, *pipelines: Pipeline) -> None:
        self.stop()
        for pipeline in pipelines:
            pipeline.prepare()
        self.query = Query(pipelines)
        self.query.start(self._spark)

    def stop(self) -> None:
        if self.query is not None:
            self.query.finish()

    def catch_up(self, *pipelines: Pipeline) -> None:
        goal = self.log.snapshot(["clicks"]).position

        def covered() -> bool:
            assert self.query is not None
            failed = self.query.failure()
            if failed is not None:
                raise failed.error
            done = [self.log.covered(pipeline.producer) for pipeline in pipelines]
            return all(each is not None and each.progress.end.covers(goal) for each in done)

        self.until(covered, within_s=120, what="the covering of the inputs")

    def failure(self) -> Any:
        query = self.query
        assert query is not None
        self.until(lambda: query.failure() is not None, within_s=120, what="the failure")
        return query.failure()

    def park_the_one_that_failed(self) -> PipelineFailed:
        assert self.query is not None
        failed = self.failure()
        assert isinstance(failed.error, PipelineFailed)
        self.query.park(failed, self._spark)
        return failed.error

    def shown(self, name: str) -> list[tuple[Any, ...]]:
        rows = Topic(self.log, self.log.topic(name)).read()
        columns = [column for column in rows.column_names if not column.startswith("_")]
        net = f"SELECT {', '.join(columns)}, sum(_weight) AS w FROM rows GROUP BY ALL HAVING w <> 0"
        return sorted(duckdb.sql(net).fetchall()) if rows.num_rows else []

    def is_right(self, name: str, sql: str) -> bool:
        clicks = self.clicks.read()  # noqa: F841
        return self.shown(name) == sorted((*row, 1) for row in duckdb.sql(sql).fetchall())


def view(name: str, sql: str) -> Lane:
    return KeyedLane(plan_view(name, sql, {"clicks": CLICKS}))


@pytest.fixture
def house(
    log: hw.Log, tmp_path: Path, each_way: str, spark: SparkSession, until: Callable[..., None]
) -> Iterator[House]:
    made = House(log, tmp_path, spark, until)
    yield made
    made.stop()


def test_views_join_leave_and_come_back_while_others_go_on(house: House) -> None:
    by_page, by_user = house.pipeline(view("by_page", BY_PAGE)), house.pipeline(view("by_user", BY_USER))
    house.some_clicks(50)
    house.run(by_page)
    house.catch_up(by_page)
    house.some_clicks(30)
    house.run(by_page, by_user)  # the second begins at the start, in the query of the first
    house.catch_up(by_page, by_user)
    assert house.is_right("by_page", BY_PAGE)
    assert house.is_right("by_user", BY_USER)
    house.some_clicks(20)
    house.run(by_user)
    house.catch_up(by_user)
    assert house.is_right("by_user", BY_USER)
    assert not house.is_right("by_page", BY_PAGE), "nobody keeps it up to date"
    house.run(by_page, by_user)
    house.some_clicks(20)
    house.catch_up(by_page, by_user)
    assert house.is_right("by_page", BY_PAGE)
    assert house.is_right("by_user", BY_USER)


def test_a_crash_between_the_appends_of_two_views_is_made_good(house: House) -> None:
    fails = house.pipeline(view("by_user", BY_USER), Failpoint("3 before", 1))
    by_page, by_user = house.pipeline(view("by_page", BY_PAGE)), house.pipeline(view("by_user", BY_USER))
    house.some_clicks(50)
    house.run(by_page, fails)
    house.catch_up(by_page, fails)
    house.some_clicks(30)
    house.failure()
    assert house.is_right("by_page", BY_PAGE), "its rows were appended before the crash"
    house.run(by_page, by_user)
    house.some_clicks(10)
    house.catch_up(by_page, by_user)
    assert house.is_right("by_page", BY_PAGE)
    assert house.is_right("by_user", BY_USER)


def test_a_view_that_fails_is_parked_and_goes_on_once_it_can(house: House, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    flag = str(mended)

    def count(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        from pathlib import Path

        if row["page"] == "/bad" and not Path(flag).exists():
            raise ValueError("no such page")
        return {"n": state["n"] + 1}

    plan = fold_plan(
        "counted",
        CLICKS,
        ("user_id",),
        columns=schema_of({"n": "int64"}),
        initial={"n": 0},
        function=count,
        by="record",
        on_error="stop",
        retain=None,
    )
    counted, by_page = house.pipeline(KeyedLane(plan, where=__file__)), house.pipeline(view("by_page", BY_PAGE))
    per_user = "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"
    house.some_clicks(40)
    house.run(counted, by_page)
    house.catch_up(counted, by_page)
    house.clicks.append([{"user_id": 1, "page": "/bad"}])
    error = house.park_the_one_that_failed()
    assert error.pipeline == "counted"
    assert "ValueError: no such page" in str(error)
    assert "raise ValueError" in str(error), "with the user's line"
    house.some_clicks(25)
    house.catch_up(by_page)
    assert house.is_right("by_page", BY_PAGE)
    assert not house.is_right("counted", per_user)

    house.run(counted, by_page)  # nothing was mended: it is parked at the same place
    assert house.park_the_one_that_failed().start == error.start
    mended.touch()
    house.run(counted, by_page)
    house.some_clicks(5)
    house.catch_up(counted, by_page)
    assert house.is_right("counted", per_user)
    assert house.is_right("by_page", BY_PAGE)


def test_a_parked_view_can_skip_what_it_cannot_read(house: House) -> None:
    def count(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + int(row["page"][1:])}

    plan = fold_plan(
        "counted",
        CLICKS,
        ("user_id",),
        columns=schema_of({"n": "int64"}),
        initial={"n": 0},
        function=count,
        by="record",
        on_error="stop",
        retain=None,
    )
    lane = KeyedLane(plan, where=__file__, dead_letters=True)
    counted, by_page = house.pipeline(lane), house.pipeline(view("by_page", BY_PAGE))
    house.some_clicks(40)
    house.run(counted, by_page)
    house.catch_up(counted, by_page)
    house.clicks.append([{"user_id": 1, "page": "/bad"}])
    house.park_the_one_that_failed()
    house.some_clicks(25)
    house.catch_up(by_page)
    house.stop()
    assert house.pipeline(lane).skip() is not None
    counted = house.pipeline(lane)
    house.run(counted, by_page)
    house.catch_up(counted, by_page)
    good = "SELECT user_id, sum(page[2:]::BIGINT) AS n FROM clicks WHERE page <> '/bad' GROUP BY user_id"
    assert house.is_right("counted", good)
    assert house.is_right("by_page", BY_PAGE)
    assert [row["record"] for row in Topic(house.log, house.log.topic("counted.dead")).read().to_pylist()] == [
        '{"user_id": 1, "page": "/bad"}'
    ]
