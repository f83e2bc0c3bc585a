"""Runs that end at each step of the protocol, in both lanes; the next one goes on, and the answer is DuckDB's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import duckdb
import pytest

import headwater as hw
from headwater.log import Topic
from headwater.process.failpoint import Failpoint, Step
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
STEPS: tuple[Step, ...] = get_args(Step)
"""In the order of the protocol."""
KILLED: tuple[Step, ...] = ("2 before", "3 after")
"""Where a worker is killed, too."""


class House:
    """Three pipelines over the same records: a stream joined with a table, sums of floats, the newest of ties."""

    def __init__(self, folder: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.app = app = hw.App("house", log=f"file:{folder}")
        self._spark, self._until = spark, until
        columns = {"user_id": "int64", "at": "timestamp", "price": "float64"}
        self.buys = app.topic("buys", columns, key="user_id", time="at")
        self.users = app.topic(
            "users", {"user_id": "int64", "name": "string"}, key="user_id", kind="table", upsert=True
        )
        self.users.upsert([{"user_id": user, "name": f"user {user}"} for user in range(7)])

        @app.stream("named", {"user_id": "int64", "name": "string", "price": "float64"}, key="user_id")
        def named(buys: DataFrame, users: DataFrame) -> DataFrame:
            return buys.join(users, "user_id").select("user_id", "name", "price")

        @app.fold("spent", {"total": "float64", "n": "int64"}, of="buys", initial={"total": 0.0, "n": 0})
        def spent(state: dict[str, Any], buy: dict[str, Any]) -> dict[str, Any]:
            return {"total": state["total"] + buy["price"], "n": state["n"] + 1}

        app.latest("newest", of="buys", by="time")  # many records have the same time
        self._made = 0

    def some_buys(self, count: int) -> None:
        numbers = range(self._made, self._made + count)
        self.buys.append(
            [{"user_id": n % 7, "at": T0 + timedelta(seconds=n // 50), "price": 0.1 * (n % 13)} for n in numbers]
        )
        self._made += count

    def pipeline(self, name: str, failpoint: Failpoint | None = None) -> Pipeline:
        made = self.app._running.derived[name]
        return Pipeline(made.lane, self.app.log, self.app.folder, failpoint=failpoint)

    def run(self, name: str, failpoint: Failpoint | None = None) -> None:
        """Until all is covered or, with a failpoint, until it has stopped there."""
        pipeline = self.pipeline(name, failpoint)
        pipeline.prepare()
        pipeline.check(self._spark)
        pipeline.start(self._spark)
        goal = self.app.log.snapshot(["buys"]).position

        def ended() -> bool:
            if failpoint is not None:
                return not pipeline.running
            failure = pipeline.failure()
            if failure is not None:
                raise failure
            done = self.app.log.covered(pipeline.producer)
            return done is not None and done.progress.end.covers(goal)

        try:
            self._until(ended, within_s=120, what=f"the end of {name}")
            assert failpoint is None or pipeline.failure() is not None
        finally:
            pipeline.stop()

    def found(self, name: str) -> list[tuple[Any, ...]]:
        rows = Topic(self.app.log, self.app.log.topic(name)).read()  # noqa: F841
        if name == "named":
            return sorted(duckdb.sql("SELECT user_id, name, price FROM rows").fetchall())
        columns = "user_id, total, n" if name == "spent" else 'user_id, "at", price'
        summed = duckdb.sql(f"SELECT {columns}, sum(_weight) AS w FROM rows GROUP BY ALL HAVING w <> 0").fetchall()
        assert all(row[-1] == 1 for row in summed), "a row was taken away that was never there"
        return sorted(row[:-1] for row in summed)

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        buys = self.buys.read()
        assert buys.num_rows == self._made
        if name == "named":
            answer = "SELECT user_id, 'user ' || user_id, price FROM buys"
        elif name == "newest":
            newest = 'row_number() OVER (PARTITION BY user_id ORDER BY "at" DESC, _partition DESC, _offset DESC) = 1'
            answer = f'SELECT user_id, "at", price FROM buys QUALIFY {newest}'
        else:  # floats, one after the other in the order of the log
            totals: dict[int, list[Any]] = {}
            for row in sorted(buys.to_pylist(), key=lambda row: (row["_partition"], row["_offset"])):
                total = totals.setdefault(row["user_id"], [0.0, 0])
                total[0] += row["price"]
                total[1] += 1
            return sorted((user, *total) for user, total in totals.items())
        return sorted(duckdb.sql(answer).fetchall())


@pytest.fixture
def house(tmp_path: Path, each_way: str, spark: SparkSession, until: Callable[..., None]) -> Iterator[House]:
    made = House(tmp_path / "log", spark, until)
    yield made
    made.app.close()


@pytest.mark.timeout(900)  # a start of a query takes seconds, on a busy machine ten
@pytest.mark.parametrize("name", ["named", "spent"])
def test_the_first_batch_that_ends_at_each_step_in_turn_goes_on_and_nothing_is_lost_or_doubled(
    house: House, name: str
) -> None:
    """Each run gets past the step at which the one before ended, with all that those have left behind."""
    house.some_buys(300)
    for step in STEPS:
        house.run(name, Failpoint(step, 0))
        if step in KILLED and step != STEPS[-1]:
            house.run(name, Failpoint(step, 0, "kill"))
    house.some_buys(200)
    house.run(name, Failpoint(STEPS[-1], 1, "kill"))
    house.some_buys(200)
    house.run(name)
    assert house.found(name) == house.expected(name)


@pytest.mark.parametrize("name", ["named", "spent", "newest"])
def test_a_batch_that_runs_twice_says_the_same_with_ties_and_floats(house: House, name: str) -> None:
    """The append stands, Spark does not know (between 3 and 6); then more comes."""
    house.some_buys(300)
    house.run(name)
    house.some_buys(150)
    house.run(name, Failpoint("3 after", 1))
    house.some_buys(100)
    house.run(name)
    assert house.found(name) == house.expected(name)
