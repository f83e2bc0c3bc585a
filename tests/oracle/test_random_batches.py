"""Random records, however they are cut into appends and batches, through both lanes: the answer over all of the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.log import Topic
from headwater.process.lane import first_version
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]
EXAMPLES = max(2, settings.default.max_examples // 40)  # type: ignore[union-attr]
"""Each starts pipelines, and costs seconds."""
T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS_S = 60
LAST_S = 10_000
"""Later than all that is random: with it every window closes."""

Buy = tuple[int, int, str | None, float | None]
Then = Literal["go on", "wait", "restart"]
BUYS: st.SearchStrategy[Buy] = st.tuples(
    st.integers(0, 4),
    st.integers(0, 400),
    st.sampled_from(["/a", "/b", ""]) | st.none(),
    st.sampled_from([0.1, 0.3, 1e15, -7.0]) | st.none(),
)
SCRIPTS = st.lists(
    st.tuples(st.lists(BUYS, min_size=1, max_size=30), st.sampled_from(["go on", "wait", "wait", "restart"])),
    min_size=2,
    max_size=5,
)


class House:
    """A count by windows, which has late records, in the frames lane; sums and newest records in the keyed lane."""

    def __init__(self, folder: Path, max_rows: int, spark: SparkSession, until: Callable[..., None]) -> None:
        self.app = app = hw.App("house", log=f"file:{folder}")
        self.log = app.log
        self._spark, self._until = spark, until
        columns = {"user_id": "int64", "at": "timestamp", "page": "string", "price": "float64"}
        self.buys = app.topic("buys", columns, key="user_id", time="at")

        @app.stream("per_minute", time="start", lateness=f"{LATENESS_S} seconds", max_rows=max_rows)
        def per_minute(buys: DataFrame) -> DataFrame:
            minute = buys.groupBy(F.window("at", "1 minute"), "page")
            counted = minute.agg(
                F.count("*").alias("n"), F.count("price").alias("priced"), F.max("price").alias("most")
            )
            return counted.select(F.col("window.start").alias("start"), "page", "n", "priced", "most")

        initial = {"total": 0.0, "n": 0, "last": None}
        state = {"total": "float64", "n": "int64", "last": "string"}

        @app.fold("spent", state, of="buys", initial=initial, max_rows=max_rows)
        def spent(state: dict[str, Any], buy: dict[str, Any]) -> dict[str, Any]:
            return {"total": state["total"] + (buy["price"] or 0.0), "n": state["n"] + 1, "last": buy["page"]}

        app.latest("newest", of="buys", by="time", max_rows=max_rows)
        self._pipelines: list[Pipeline] = []

    def start(self) -> None:
        for declared in self.app._running.derived.values():
            pipeline = Pipeline(declared.lane, self.log, self.app.folder, limits=declared.limits)
            self._pipelines.append(pipeline)
            pipeline.prepare()
            pipeline.check(self._spark)
            pipeline.start(self._spark)

    def stop(self) -> None:
        while self._pipelines:
            self._pipelines.pop().stop()

    def append(self, buys: list[Buy]) -> None:
        names = self.buys.spec.schema.names
        rows = [(user, T0 + timedelta(seconds=second), page, price) for user, second, page, price in buys]
        self.buys.append([dict(zip(names, row, strict=True)) for row in rows])

    def catch_up(self) -> None:
        goal = self.log.snapshot(["buys"]).position

        def covered() -> bool:
            for pipeline in self._pipelines:
                failure = pipeline.failure()
                if failure is not None:
                    raise failure
                done = self.log.covered(pipeline.producer)
                if done is None or not done.progress.end.covers(goal):
                    return False
            return True

        self._until(covered, within_s=240, what="the pipelines' covering of their input")

    def play(self, script: list[tuple[list[Buy], Then]]) -> None:
        self.start()
        for buys, then in script:
            self.append(buys)
            if then != "go on":
                self.catch_up()
            if then == "restart":
                self.stop()
                self.start()
        for second in (LAST_S, LAST_S + 1):  # two, for a window closes in the batch after the one that says so
            self.append([(0, second, None, None)])
            self.catch_up()
        self.stop()

    # --- what came of it, and the answers over all of the log ---

    def rows(self, topic: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = Topic(self.log, self.log.topic(topic)).read().to_pylist()
        return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))

    def view(self, name: str, columns: str) -> list[tuple[Any, ...]]:
        rows = Topic(self.log, self.log.topic(name)).read()  # noqa: F841
        summed = f"SELECT {columns}, sum(_weight) AS w FROM rows GROUP BY ALL HAVING w <> 0"
        found = duckdb.sql(summed).fetchall()
        assert all(row[-1] == 1 for row in found), "a row is there once, or not at all"
        return sorted((row[:-1] for row in found), key=repr)

    def check_windows(self) -> None:
        """Late is what is no later than the greatest event time of earlier batches, less the lateness."""
        buys, late, in_time, place = self.rows("buys"), [], [], 0
        producer = first_version(self.app._running.derived["per_minute"].lane).producer
        while (batch := self.log.covered(producer, sequence=place)) is not None:
            start, end = batch.progress.start, batch.progress.end
            before = [row["at"] for row in buys if row["_offset"] < start.offset("buys", row["_partition"])]
            for row in buys:
                offset, partition = row["_offset"], row["_partition"]
                if start.offset("buys", partition) <= offset < end.offset("buys", partition):
                    is_late = before and row["at"] <= max(before) - timedelta(seconds=LATENESS_S)
                    (late if is_late else in_time).append(row)
            place += 1
        assert len(late) + len(in_time) == len(buys)
        assert sorted(row["time"] for row in self.rows("per_minute.late")) == sorted(row["at"] for row in late)
        windows: dict[Any, list[Any]] = {}
        for row in in_time:
            if row["at"] < T0 + timedelta(seconds=LAST_S):
                windows.setdefault((row["at"].replace(second=0), row["page"]), []).append(row["price"])
        expected = []
        for (minute, page), prices in windows.items():
            priced = [price for price in prices if price is not None]
            expected.append((minute, page, len(prices), len(priced), max(priced, default=None)))
        found = [
            tuple(row[name] for name in ("start", "page", "n", "priced", "most")) for row in self.rows("per_minute")
        ]
        assert sorted(found, key=repr) == sorted(expected, key=repr)

    def check_views(self) -> None:
        totals: dict[int, tuple[float, int, str | None]] = {}
        newest: dict[int, dict[str, Any]] = {}
        for row in self.rows("buys"):  # a key is in one partition: floats are summed in the order of the log
            total, n, _ = totals.get(row["user_id"], (0.0, 0, None))
            totals[row["user_id"]] = total + (row["price"] or 0.0), n + 1, row["page"]
            if row["user_id"] not in newest or row["at"] >= newest[row["user_id"]]["at"]:
                newest[row["user_id"]] = row
        expected = sorted(((user, *state) for user, state in totals.items()), key=repr)
        assert self.view("spent", 'user_id, total, n, "last"') == expected
        names = self.buys.spec.schema.names
        expected = sorted((tuple(row[name] for name in names) for row in newest.values()), key=repr)
        assert self.view("newest", 'user_id, "at", page, price') == expected


@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example made smaller is no cheaper to run
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=SCRIPTS, max_rows=st.sampled_from([7, 40, 1000]))
def test_random_batches_equal_the_answer_over_all_of_the_log(
    script: list[tuple[list[Buy], Then]],
    max_rows: int,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    until: Callable[..., None],
) -> None:
    note(f"{len(script)} appends, at most {max_rows} rows a batch")
    house = House(tmp_path_factory.mktemp("house") / "log", max_rows, spark, until)
    try:
        house.play(script)
        house.check_windows()
        house.check_views()
    finally:
        house.stop()
        house.app.close()
