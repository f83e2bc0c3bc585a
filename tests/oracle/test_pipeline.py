"""A pipeline on Spark against DuckDB over the log, through restarts, retried batches and lost files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import Fenced, HeadwaterError, PipelineFailed
from headwater.log import Topic, TopicSpec
from headwater.process.keyed.lane import KeyedLane
from headwater.process.pipeline import Pipeline
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL = """
SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page"""


class House:
    """Topics, one view's pipeline, and the two answers to compare."""

    def __init__(self, log: hw.Log, folder: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.log, self.folder, self._spark, self._until = log, folder, spark, until
        columns = {"user_id": "int64", "page": "string"}
        self.clicks = Topic(log, log.create(TopicSpec("clicks", schema_of(columns), key=("user_id",))))
        columns = {"user_id": "int64", "country": "string"}
        self.users = Topic(log, log.create(TopicSpec("users", schema_of(columns), key=("user_id",), kind="table")))
        self.countries: dict[int, str] = {}
        self.chance = random.Random(7)
        self.pipeline = self.new_pipeline()

    def new_pipeline(self, sql: str = SQL) -> Pipeline:
        inputs = {topic.name: topic.spec for topic in (self.clicks, self.users)}
        return Pipeline(KeyedLane(plan_view("by_page", sql, inputs)), self.log, self.folder)

    @property
    def checkpoint(self) -> Path:
        return self.pipeline.folder / "checkpoint"

    def start(self) -> None:
        self.pipeline = self.new_pipeline()
        self.pipeline.prepare()
        self.pipeline.start(self._spark)

    def some_clicks(self, count: int) -> None:
        rows = [{"user_id": self.chance.randrange(40), "page": f"/{self.chance.randrange(9)}"} for _ in range(count)]
        self.clicks.append(rows)

    def some_users(self, count: int) -> None:
        rows: list[dict[str, Any]] = []
        for _ in range(count):
            user_id, country = self.chance.randrange(40), self.chance.choice(["de", "fr", "us", "gone"])
            if user_id in self.countries:
                rows.append({"user_id": user_id, "country": self.countries.pop(user_id), "_weight": -1})
            if country != "gone":
                self.countries[user_id] = country
                rows.append({"user_id": user_id, "country": country, "_weight": 1})
        self.users.append(rows)

    def catch_up(self) -> None:
        goal = self.log.snapshot(["clicks", "users"]).position

        def covered() -> bool:
            failure = self.pipeline.failure()
            if failure is not None:
                raise failure
            done = self.log.covered(self.pipeline.producer)
            return done is not None and done.progress.end.covers(goal)

        self._until(covered, within_s=120, what="the pipeline's covering of its inputs")

    def view(self) -> list[tuple[Any, ...]]:
        rows = Topic(self.log, self.log.topic("by_page")).read()
        answer = "SELECT page, views, visitors, countries, sum(_weight) AS w FROM rows GROUP BY ALL HAVING w <> 0"
        return sorted(duckdb.sql(answer).fetchall()) if rows.num_rows else []

    def expected(self) -> list[tuple[Any, ...]]:
        clicks, changes = self.clicks.read(), self.users.read()
        oracle = duckdb.connect()
        oracle.register("clicks", clicks)
        oracle.register("changes", changes)
        oracle.execute("CREATE VIEW users AS SELECT user_id, country FROM changes GROUP BY ALL HAVING sum(_weight) > 0")
        return sorted((*row, 1) for row in oracle.execute(SQL).fetchall())


@pytest.fixture
def house(log: hw.Log, tmp_path: Path, spark: SparkSession, until: Callable[..., None]) -> Any:
    made = House(log, tmp_path / "pipelines", spark, until)
    yield made
    made.pipeline.stop()


def test_the_view_is_the_answer_over_the_log_batch_after_batch(house: House) -> None:
    house.some_users(30)
    house.some_clicks(100)
    house.start()
    for _ in range(3):
        house.catch_up()
        assert house.view() == house.expected()
        house.some_clicks(50)
        house.some_users(5)
    house.catch_up()
    assert house.view() == house.expected()
    assert len(house.view()) == 9


def test_a_stopped_pipeline_goes_on_and_a_batch_run_twice_counts_once(house: House) -> None:
    house.some_users(30)
    house.some_clicks(100)
    house.start()
    house.catch_up()
    house.some_users(10)
    house.some_clicks(60)
    house.catch_up()
    house.pipeline.stop()

    # As after a crash between step 3 and step 6: the rows stand in the log, Spark does not know that it was done.
    last = max(int(file.name) for file in (house.checkpoint / "commits").iterdir() if file.name.isdigit())
    (house.checkpoint / "commits" / str(last)).unlink()
    (house.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    before = house.view()
    house.start()
    house.some_clicks(80)
    house.some_users(10)
    house.catch_up()
    assert house.view() == house.expected() != before


def test_many_rows_go_from_task_to_task_by_file_and_nothing_is_left_of_them(house: House) -> None:
    house.some_users(30)
    pages = [f"/a/rather/long/page/{n % 5_000}" for n in range(150_000)]
    house.clicks.append(pa.table({"user_id": [n % 40 for n in range(150_000)], "page": pages}))
    house.start()
    house.catch_up()
    assert house.view() == house.expected()
    house.pipeline.stop()
    assert sorted(file.name for file in house.pipeline.folder.iterdir()) == ["checkpoint", "kept"]


def test_batches_have_a_limit_and_end_on_appends(house: House) -> None:
    house.some_users(30)
    for _ in range(12):
        house.some_clicks(10)
    inputs = {topic.name: topic.spec for topic in (house.clicks, house.users)}
    house.pipeline = Pipeline(
        KeyedLane(plan_view("by_page", SQL, inputs)), house.log, house.folder, limits=Limits(rows=40)
    )
    house.pipeline.prepare()
    house.pipeline.start(house._spark)
    house.catch_up()
    assert house.view() == house.expected()
    done = house.log.covered(house.pipeline.producer)
    assert done is not None
    assert done.sequence >= 3


def test_a_newer_run_fences_the_older_one(house: House, until: Callable[..., None]) -> None:
    house.some_users(10)
    house.start()
    house.catch_up()
    older = house.pipeline
    newer = house.log.begin(older.producer)
    house.some_clicks(10)
    until(lambda: older.failure() is not None, within_s=60, what="the older run's end")
    failure = older.failure()
    assert isinstance(failure, Fenced)
    assert failure.current == newer.epoch


def _deleted(checkpoint: Path, older: Path) -> None:
    shutil.rmtree(checkpoint)


def _cut_back(checkpoint: Path, older: Path) -> None:
    """The last two batches were never written down, as after a power cut: Spark does not sync its checkpoint."""
    for folder in ("offsets", "commits"):
        for lost in sorted((checkpoint / folder).glob("[0-9]*"), key=lambda each: int(each.name))[-2:]:
            lost.unlink()
            (lost.parent / f".{lost.name}.crc").unlink(missing_ok=True)


def _restored(checkpoint: Path, older: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)


@pytest.mark.parametrize("harm", [_deleted, _cut_back, _restored])
def test_a_checkpoint_that_was_deleted_cut_back_or_restored_does_no_harm(
    house: House, tmp_path: Path, harm: Callable[[Path, Path], None]
) -> None:
    """What a view covers, and its state, go with its appends."""
    older = tmp_path / "older"
    house.some_users(10)
    house.start()
    house.catch_up()
    house.pipeline.stop()
    shutil.copytree(house.checkpoint, older)
    house.start()
    for _ in range(2):
        house.some_clicks(10)
        house.catch_up()
    house.pipeline.stop()
    harm(house.checkpoint, older)
    house.start()
    for _ in range(2):
        house.some_clicks(10)
        house.catch_up()
    assert house.view() == house.expected()


def test_damage_in_the_log_stops_the_pipeline_with_the_reason(house: House, until: Callable[..., None]) -> None:
    house.some_users(10)
    many = pa.table({"user_id": [n % 40 for n in range(50_000)], "page": ["/a/long/page"] * 50_000})
    house.clicks.append(many)
    file = sorted((Path(house.log.url[5:]) / "chunks" / "clicks").iterdir())[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    house.start()
    until(lambda: house.pipeline.failure() is not None, within_s=90, what="the failure")
    failure: HeadwaterError | None = house.pipeline.failure()
    assert isinstance(failure, PipelineFailed)
    assert "the chunk in" in str(failure)
    assert "is damaged" in str(failure)
