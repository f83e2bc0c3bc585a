"""Functions over frames, run as pipelines, against DuckDB and plain Python over the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.errors import BadFrame, BadFunction, CheckpointLost, Fenced, PipelineFailed
from headwater.log import Position, Topic
from headwater.process.failpoint import Failpoint
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CLICKS = {"user_id": "int64", "page": "string", "at": "timestamp"}
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def click(second: int, user: int = 1, page: str = "/a") -> dict[str, Any]:
    return {"user_id": user, "page": page, "at": T0 + timedelta(seconds=second)}


class House:
    """An app whose pipelines run one by one in the suite's Spark session."""

    def __init__(self, folder: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.app = hw.App("house", log=f"file:{folder}")
        self.log = self.app.log
        self.clicks = self.app.topic("clicks", CLICKS, key="user_id", time="at")
        self._spark, self._until = spark, until
        self._running: list[Pipeline] = []

    def start(self, name: str, failpoint: Failpoint | None = None) -> Pipeline:
        declared = self.app._running.derived[name]
        pipeline = Pipeline(
            declared.lane,
            self.log,
            self.app.folder,
            limits=declared.limits,
            start=declared.start,
            failpoint=failpoint,
        )
        pipeline.prepare()
        pipeline.check(self._spark)
        pipeline.start(self._spark)
        self._running.append(pipeline)
        return pipeline

    def through(self, pipeline: Pipeline) -> None:
        goal = self.log.snapshot(pipeline.lane.inputs).position

        def covered() -> bool:
            failure = pipeline.failure()
            if failure is not None:
                raise failure
            done = self.log.covered(pipeline.producer)
            return done is not None and done.progress.end.covers(goal)

        self._until(covered, within_s=120, what=f"{pipeline.name}'s covering of its inputs")

    def failed(self, pipeline: Pipeline) -> Exception:
        self._until(lambda: not pipeline.running, within_s=120, what="the end of the run")
        failure = pipeline.failure()
        assert failure is not None
        return failure

    def run(self, name: str) -> None:
        pipeline = self.start(name)
        self.through(pipeline)
        pipeline.stop()

    def read(self, topic: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = Topic(self.log, self.log.topic(topic)).read().to_pylist()
        return rows

    def start_skipping(self, name: str) -> object:
        declared = self.app._running.derived[name]
        return Pipeline(declared.lane, self.log, self.app.folder).skip()

    def close(self) -> None:
        for pipeline in self._running:
            pipeline.stop()
        self.app.close()


@pytest.fixture
def house(tmp_path: Path, spark: SparkSession, until: Callable[..., None]) -> Iterator[House]:
    made = House(tmp_path / "log", spark, until)
    yield made
    made.close()


def test_a_stream_with_the_current_table_batch_after_batch(house: House) -> None:
    users = house.app.topic(
        "users", {"user_id": "int64", "country": "string"}, key="user_id", kind="table", upsert=True
    )
    names = house.app.topic("names", {"page": "string", "title": "string"}, key="page", kind="table")

    @house.app.stream("joined", key="user_id", time="at")
    def joined(clicks: DataFrame, users: DataFrame, names: DataFrame) -> DataFrame:
        return clicks.join(users, "user_id").join(names, "page", "left").select("user_id", "country", "title", "at")

    users.upsert([{"user_id": user, "country": "de"} for user in range(3)])
    names.append([{"page": "/a", "title": "old"}])
    house.clicks.append([click(second, second % 4) for second in range(8)])
    pipeline = house.start("joined")
    house.through(pipeline)
    users.upsert([{"user_id": 0, "country": "fr"}])
    users.delete([{"user_id": 1}])
    names.append([{"page": "/a", "title": "old", "_weight": -1}, {"page": "/a", "title": "new"}])
    house.clicks.append([click(second, second % 4) for second in range(8, 16)])
    house.through(pipeline)
    pipeline.stop()

    found = sorted((row["at"].second, row["country"], row["title"]) for row in house.read("joined"))
    before = [(second, "de", "old") for second in range(8) if second % 4 != 3]
    after = [(second, {0: "fr", 2: "de"}[second % 4], "new") for second in range(8, 16) if second % 4 in (0, 2)]
    assert found == before + after


def test_windows_close_late_records_go_aside_and_all_are_counted(house: House) -> None:
    @house.app.stream("per_minute", key="page", time="start", lateness="1 minute")
    def per_minute(clicks: DataFrame) -> DataFrame:
        counted = clicks.groupBy(F.window("at", "1 minute"), "page").agg(F.count("*").alias("n"))
        return counted.select(F.col("window.start").alias("start"), "page", "n")

    given: list[list[int]] = [[0, 10, 70], [5, 130], [9, 65, 10, 300], [200, 241, 900], [901]]
    pipeline = house.start("per_minute")
    for seconds in given:  # each a batch of its own: what is late depends on the batches before
        house.clicks.append([click(second) for second in seconds])
        house.through(pipeline)
    pipeline.stop()

    expected_late, expected, greatest = [], {}, None
    for seconds in given:
        for second in seconds:
            if greatest is not None and second <= greatest - 60:
                expected_late.append(second)
            else:
                expected[second // 60] = expected.get(second // 60, 0) + 1
        greatest = max([*seconds, *([greatest] if greatest is not None else [])])
    late = house.read("per_minute.late")
    assert sorted((row["time"] - T0).seconds for row in late) == sorted(expected_late)
    assert all(row["late_us"] > 0 and row["topic"] == "clicks" and '"page": "/a"' in row["record"] for row in late)
    closed = {(row["start"] - T0).seconds // 60: row["n"] for row in house.read("per_minute")}
    assert closed == {minute: n for minute, n in expected.items() if (minute + 1) * 60 <= 901 - 60}
    still_open = sum(n for minute, n in expected.items() if minute not in closed)
    assert sum(map(len, given)) == sum(closed.values()) + still_open + len(late)


def test_update_mode_keeps_the_newest_row_of_each_key(house: House) -> None:
    @house.app.stream("totals", {"page": "string", "count": "int64"}, key="page", mode="update")
    def totals(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("page").count()

    pipeline = house.start("totals")
    for _ in range(3):
        house.clicks.append([click(second, page=f"/{second % 3}") for second in range(10)])
        house.through(pipeline)
    newest = {row["page"]: row["count"] for row in house.read("totals")}
    rows = house.clicks.read()
    assert rows.num_rows == 30
    assert newest == dict(duckdb.sql("SELECT page, count(*) FROM rows GROUP BY page").fetchall())


def test_two_streams_joined_within_an_interval(house: House) -> None:
    buys = house.app.topic(
        "buys", {"user_id": "int64", "at": "timestamp", "price": "float64"}, key="user_id", time="at"
    )

    @house.app.stream("led_to", key="user_id", lateness="10 seconds")
    def led_to(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        left, right = clicks.alias("c"), buys.alias("b")
        soon = F.expr("c.user_id = b.user_id AND b.at BETWEEN c.at AND c.at + INTERVAL 30 SECONDS")
        return left.join(right, soon).select("c.user_id", "c.page", "b.price")

    clicks = [(0, 1), (5, 2), (40, 1)]
    bought = [(10, 1, 5.0), (36, 2, 6.0), (60, 1, 7.0)]
    house.clicks.append([click(second, user) for second, user in clicks])
    buys.append([{"user_id": user, "at": T0 + timedelta(seconds=at), "price": price} for at, user, price in bought])
    house.run("led_to")
    found = sorted((row["user_id"], row["price"]) for row in house.read("led_to"))
    assert found == sorted((b[1], b[2]) for c in clicks for b in bought if c[1] == b[1] and 0 <= b[0] - c[0] <= 30)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user_id": "int64", "page": "int64"}, "gives 'page' as string, 'out' declares int64"),
        ({"user_id": "int64", "page": "string", "more": "bool"}, "gives no column 'more'"),
        ({"user_id": "int64"}, "gives a column 'page'"),
    ],
)
def test_what_the_function_gives_is_checked_before_anything_starts(
    house: House, columns: dict[str, str], said: str
) -> None:
    @house.app.stream("out", columns)
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("user_id", "page")

    with pytest.raises(BadFrame, match=said) as caught:
        house.start("out")
    assert "test_frames_lane.py, line" in str(caught.value)


def test_an_error_of_the_query_comes_with_the_users_line(house: House) -> None:
    @house.app.stream("out")
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("no_such_column")

    with pytest.raises(BadFunction, match=r'test_frames_lane.py, line \d+: return clicks.select\("no_such_column"\)'):
        house.start("out")


def test_a_function_that_raises_stops_with_its_line_and_its_batch_can_be_skipped(house: House) -> None:
    @house.app.stream("out", {"user_id": "int64", "inverse": "float64"})
    def out(clicks: DataFrame) -> DataFrame:
        def inverse(frames: Any) -> Any:
            for frame in frames:
                frame["inverse"] = [1 / int(user) for user in frame["user_id"]]
                yield frame[["user_id", "inverse"]]

        return clicks.mapInPandas(inverse, "user_id long, inverse double")

    house.clicks.append([click(0, 2)])
    house.run("out")
    house.clicks.append([click(1, 0), click(2, 4)])
    failure = house.failed(house.start("out"))
    assert isinstance(failure, PipelineFailed)
    assert "ZeroDivisionError" in str(failure)
    assert 'frame["inverse"] = [1 / int(user)' in str(failure)
    assert failure.batch == 1
    assert "headwater view skip out" in str(failure)

    assert house.start_skipping("out") is not None
    house.clicks.append([click(3, 5)])
    house.run("out")
    assert sorted(row["user_id"] for row in house.read("out")) == [2, 5]
    dead = house.read("out.dead")
    assert sorted(row["record"].split('"user_id": ')[1][0] for row in dead) == ["0", "4"]
    assert {row["error"] for row in dead} == {"skipped by hand"}


@pytest.mark.parametrize("start", ["end", "position", "time"])
def test_a_stream_that_begins_elsewhere_than_at_the_start(house: House, start: str) -> None:
    house.clicks.append([click(0, 1), click(1, 2)])
    where: Any = {"end": "end", "position": house.clicks.end(), "time": datetime.now(UTC)}[start]

    @house.app.stream("out", {"user_id": "int64"}, start=where)
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("user_id")

    pipeline = house.start("out")
    house.clicks.append([click(2, 3)])
    house.through(pipeline)
    pipeline.stop()
    house.clicks.append([click(3, 4)])
    house.run("out")
    assert sorted(row["user_id"] for row in house.read("out")) == [3, 4]


def test_batches_are_no_larger_than_asked(house: House) -> None:
    for first in range(0, 40, 4):
        house.clicks.append([click(second) for second in range(first, first + 4)])

    @house.app.stream("out", {"user_id": "int64"}, max_rows=10)
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("user_id")

    house.run("out")
    producer = next(pipeline.producer for pipeline in house._running)
    covered = house.log.covered(producer)
    assert covered is not None
    assert covered.sequence == 4  # two appends of four rows a batch
    assert len(house.read("out")) == 40


def test_a_second_run_fences_the_first(house: House) -> None:
    @house.app.stream("out", {"user_id": "int64"})
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("user_id")

    older = house.start("out")
    house.clicks.append([click(0, 1)])
    house.through(older)
    house.log.begin(older.producer)
    house.clicks.append([click(1, 2)])
    assert isinstance(house.failed(older), Fenced)
    house.run("out")
    assert sorted(row["user_id"] for row in house.read("out")) == [1, 2]


def test_a_checkpoint_that_is_gone_is_told(house: House) -> None:
    import shutil

    @house.app.stream("out", {"user_id": "int64"})
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.select("user_id")

    house.clicks.append([click(0, 1)])
    house.run("out")
    shutil.rmtree(house._running[0].folder / "checkpoint")
    with pytest.raises(CheckpointLost, match="it is gone"):
        house.start("out")


def test_positions_of_a_stream_are_those_of_its_inputs(house: House) -> None:
    @house.app.stream("out", {"user_id": "int64"})
    def out(clicks: DataFrame) -> DataFrame:
        return clicks.where("user_id > 100").select("user_id")

    token = house.clicks.append([click(0, 1)])
    house.run("out")
    covered = house.log.covered(house._running[0].producer)
    assert covered is not None
    assert covered.progress.end.covers(token)  # also without a single record of output
    assert house.read("out") == []
    assert covered.progress.start == Position()
