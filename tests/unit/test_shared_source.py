"""The source of several views: what each is to read, and that what they share is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import headwater as hw
from headwater.log import Progress, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.process.job import Job
from headwater.process.keyed.offsets import from_offset
from headwater.process.keyed.source import PackedReader
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",), partitions=1)


@dataclass
class House:
    log: hw.Log
    clicks: Topic

    def job(self, name: str, sql: str) -> Job:
        folder = f"{self.log.url.removeprefix('file:')}/pipelines/{name}/1"
        plan = plan_view(name, sql, {"clicks": CLICKS})
        return Job(name, self.log.url, self.log.begin(name), name, folder, folder, ("clicks",), plan=plan)

    def cover(self, job: Job, batch: int, offset: dict[str, Any]) -> None:
        """As the sink does."""
        progress = from_offset(offset)[job.producer.name].progress
        self.log.append([], producer=job.producer, sequence=batch, progress=progress)


@pytest.fixture
def house(log: hw.Log, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(EmbeddedLog, "wait", lambda self, after, timeout_s: None)
    return House(log, Topic(log, log.create(CLICKS)))


def latest(reader: PackedReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, ReadAllAvailable())


BY_SPARK = Limits(few=0)
BY_PAGE = "SELECT page, count(*) AS n FROM clicks GROUP BY page"
BY_USER = "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"


def test_each_view_goes_on_where_the_log_says_that_it_is(house: House) -> None:
    one, two = house.job("one", BY_PAGE), house.job("two", BY_USER)
    house.clicks.append([{"user_id": 1, "page": "/"}] * 10)
    first = latest(alone := PackedReader([one], BY_SPARK), alone.initialOffset())
    house.cover(one, 0, first)
    assert latest(alone, first) == first
    house.clicks.append([{"user_id": 1, "page": "/"}] * 5)
    second = latest(PackedReader([one, two], BY_SPARK), first)
    ranges = {name: (entry.start.total, entry.end.position.total) for name, entry in from_offset(second).items()}
    assert ranges == {"one": (10, 15), "two": (0, 15)}
    # `two` was left behind by this batch, `one` was not: what Spark has planned does not count.
    house.cover(one, 1, second)
    house.clicks.append([{"user_id": 1, "page": "/"}])
    third = latest(PackedReader([one, two], BY_SPARK), second)
    ranges = {name: (entry.start.total, entry.end.position.total) for name, entry in from_offset(third).items()}
    assert ranges == {"one": (15, 16), "two": (0, 16)}


def test_a_parked_view_is_to_read_what_it_failed_to(house: House) -> None:
    from dataclasses import replace

    one = house.job("one", BY_PAGE)
    house.clicks.append([{"user_id": 1, "page": "/"}] * 10)
    failed = from_offset(latest(reader := PackedReader([one], BY_SPARK), reader.initialOffset()))["one"].progress
    house.clicks.append([{"user_id": 1, "page": "/"}] * 10)
    again = PackedReader([replace(one, parked=failed)], BY_SPARK)
    assert from_offset(latest(again, again.initialOffset()))["one"].progress == failed


def test_a_range_that_went_by_is_planned_again_and_can_be_told_from_the_first_time(house: House) -> None:
    one = house.job("one", BY_PAGE)
    house.clicks.append([{"user_id": 1, "page": "/"}] * 10)
    reader = PackedReader([one], BY_SPARK)
    first = latest(reader, reader.initialOffset())
    second = latest(reader, first)  # it has appended nothing
    third = latest(reader, second)
    assert [from_offset(each)["one"].again for each in (first, second, third)] == [0, 1, 2]
    assert len({str(from_offset(each)["one"].progress) for each in (first, second, third)}) == 1


def test_what_views_share_is_read_once_and_each_gets_its_own(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = house.job("one", BY_PAGE), house.job("two", BY_USER)
    house.clicks.append([{"user_id": n % 7, "page": "/"} for n in range(100)])
    reader = PackedReader([one, two], BY_SPARK)
    start = reader.initialOffset()
    end = latest(reader, start)
    scans = []
    real = EmbeddedLog.scan

    def counted(self: EmbeddedLog, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        scans.append(sorted(named["columns"]))
        return real(self, *given, **named)

    monkeypatch.setattr(EmbeddedLog, "scan", counted)
    (task,) = reader.partitions(start, end)
    batches = list(reader.read(task))
    assert scans == [["page", "user_id"]]
    assert {view for batch in batches for view in batch["view"].to_pylist()} == {0, 1}


def test_a_view_that_left_is_passed_by(house: House) -> None:
    one, two = house.job("one", BY_PAGE), house.job("two", BY_USER)
    house.clicks.append([{"user_id": 1, "page": "/"}] * 10)
    both = PackedReader([one, two], BY_SPARK)
    start = both.initialOffset()
    end = latest(both, start)
    (task,) = PackedReader([two], BY_SPARK).partitions(start, end)
    assert [shared.views for shared in task.ranges] == [(0,)]
    assert Progress(*[task.ends[0]] * 2).end.total == 10
