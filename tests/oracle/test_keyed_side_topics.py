"""The keyed lane in an app: what raises and what is late goes beside the view, once, also when a batch repeats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.errors import PipelineFailed
from headwater.log import Topic
from headwater.process.failpoint import Failpoint
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"user_id": "int64", "at": "timestamp", "price": "float64"}


def buy(minute: int, user: int, price: float) -> dict[str, Any]:
    return {"user_id": user, "at": T0 + timedelta(minutes=minute), "price": price}


class Shop:
    def __init__(self, folder: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.app = hw.App("shop", log=f"file:{folder}")
        self.buys = self.app.topic("buys", COLUMNS, key="user_id", time="at", partitions=1)
        self._spark, self._until = spark, until

    def run(self, name: str, failpoint: Failpoint | None = None) -> Pipeline:
        made = self.app._running.derived[name]
        pipeline = Pipeline(made.lane, self.app.log, self.app.folder, failpoint=failpoint)
        pipeline.prepare()
        pipeline.check(self._spark)
        pipeline.start(self._spark)
        goal = self.app.log.snapshot(["buys"]).position

        def ended() -> bool:
            done = self.app.log.covered(pipeline.producer)
            through = done is not None and done.progress.end.covers(goal)
            return not pipeline.running or (through and failpoint is None)

        self._until(ended, within_s=120, what="the end of the run")
        pipeline.stop()
        return pipeline

    def read(self, topic: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = Topic(self.app.log, self.app.log.topic(topic)).read().to_pylist()
        return rows

    def view(self, name: str) -> dict[int, tuple[Any, ...]]:
        shown: dict[tuple[Any, ...], int] = {}
        for row in self.read(name):
            values = tuple(value for column, value in row.items() if not column.startswith("_"))
            shown[values] = shown.get(values, 0) + row["_weight"]
        assert set(shown.values()) <= {0, 1}
        return {values[0]: values[1:] for values, weight in shown.items() if weight}


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, until: Callable[..., None]) -> Any:
    made = Shop(tmp_path / "log", spark, until)
    yield made
    made.app.close()


def test_a_record_on_which_a_fold_raises_goes_to_the_dead_letters_once(shop: Shop) -> None:
    @shop.app.fold("spent", {"total": "float64"}, of=shop.buys, initial={"total": 0.0}, on_error="dead")
    def spent(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        if record["price"] < 0:
            raise ValueError(f"a price of {record['price']}")
        return {"total": state["total"] + record["price"]}

    shop.buys.append([buy(0, 1, 2.0), buy(1, 1, -5.0), buy(2, 2, 1.0), buy(3, 1, 3.0)])
    shop.run("spent", Failpoint("3 after", 0))
    shop.run("spent")
    assert shop.view("spent") == {1: (5.0,), 2: (1.0,)}
    (dead,) = shop.read("spent.dead")
    assert (dead["topic"], dead["partition"], dead["offset"]) == ("buys", 0, 1)
    assert "ValueError: a price of -5.0" in dead["error"]
    assert '"price": -5.0' in dead["record"]


def test_a_fold_that_stops_tells_the_users_line_and_the_record(shop: Shop) -> None:
    @shop.app.fold("spent", {"total": "float64"}, of="buys", initial={"total": 0.0})
    def spent(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        return {"total": state["total"] + 1 / record["price"]}

    shop.buys.append([buy(0, 1, 2.0), buy(1, 1, 0.0)])
    failure = shop.run("spent").failure()
    assert isinstance(failure, PipelineFailed)
    assert "1 / record" in str(failure)
    assert failure.batch == 0


def test_what_comes_later_than_is_retained_goes_aside_and_quiet_keys_leave(shop: Shop) -> None:
    shop.app.latest("newest", of="buys", retain="1 hour")
    shop.buys.append([buy(0, 1, 1.0), buy(30, 2, 2.0), buy(50, 3, 3.0)])
    shop.run("newest")
    assert set(shop.view("newest")) == {1, 2, 3}
    shop.buys.append([buy(95, 4, 4.0), buy(20, 5, 5.0), buy(60, 6, 6.0)])  # 20 is late: 95 came before it
    shop.run("newest")
    assert set(shop.view("newest")) == {3, 4, 6}  # 0 and 30 are more than an hour before 95
    (late,) = shop.read("newest.late")
    assert (late["time"], late["late_us"]) == (T0 + timedelta(minutes=20), 15 * 60 * 1_000_000)
    assert '"user_id": 5' in late["record"]
