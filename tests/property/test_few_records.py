"""Batches of few records without a Spark job, those of a Spark query, and runs that end in the middle of either, in any
order: after each the views are DuckDB's answers over the log, and no file of state is lost or left over."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import headwater as hw
from headwater.errors import Fenced
from headwater.log import Topic
from headwater.log.splitting import split
from headwater.process.job import Job, dump_jobs
from headwater.process.keyed import few, merging
from headwater.process.keyed.keeping import newest
from headwater.process.keyed.lane import KeyedLane
from headwater.process.keyed.runner import LevelRunner
from headwater.process.keyed.sink import BlobWriter
from headwater.process.keyed.source import PackedReader
from headwater.process.pipeline import Pipeline
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from tests.property.changes import INPUTS, answer, bag, prefixes
from tests.property.test_prefix_rule import seeds

VIEWS = {
    "no-level": ["SELECT id, upper(page) AS p FROM clicks WHERE n > 1", "SELECT user_id, age FROM users"],
    "one-level": [
        "SELECT page, count(*) AS c, sum(n) AS s, max(n) AS m FROM clicks GROUP BY page",
        "SELECT c.id, u.country, c.n FROM clicks c JOIN users u ON c.user_id = u.user_id",
        "SELECT page, count(DISTINCT user_id) AS d FROM clicks GROUP BY page",  # its buckets are never one
        "SELECT count(*) AS n FROM users",
    ],
    "two-levels": [
        "SELECT u.country, count(*) AS c, max(c.n) AS m FROM clicks c JOIN users u USING (user_id) GROUP BY ALL",
        "SELECT page, c FROM (SELECT page, count(*) AS c FROM clicks GROUP BY page) ORDER BY c DESC, page LIMIT 2",
    ],
}


class House:
    """Views that share a query: their batches run here as Spark runs them, or at once."""

    def __init__(self, log: hw.Log, root: Path, queries: list[str]) -> None:
        self.log = log
        for spec in INPUTS.values():
            log.create(spec)
        self._checkpoint = root / "queries" / "shop" / "checkpoint"
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder).mkdir(parents=True)
        self.plans = {f"v{number}": plan_view(f"v{number}", sql, INPUTS) for number, sql in enumerate(queries)}
        self._pipelines = [
            Pipeline(KeyedLane(plan), log, root, query=root / "queries" / "shop") for plan in self.plans.values()
        ]
        self._offset: dict[str, Any] = PackedReader([], Limits(few=0)).initialOffset()
        self._batch = 0
        self._undone: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        """A new run. Spark runs its last batch again, if it does not know that it is done."""
        for pipeline in self._pipelines:
            pipeline.prepare()
        self.jobs: list[Job] = [pipeline.begin() for pipeline in self._pipelines]
        self.reader, self.at_once = (PackedReader(self.jobs, Limits(few=most)) for most in (0, 1_000_000))
        if self._undone is not None:
            self.run(self._undone)
            self.done()

    def few(self) -> None:
        assert self.at_once.latestOffset(self._offset, ReadAllAvailable()) == self._offset, "Spark hears of no news"

    def plan(self) -> dict[str, Any] | None:
        end = self.reader.latestOffset(self._offset, ReadAllAvailable())
        if end == self._offset:
            return None
        (self._checkpoint / "offsets" / str(self._batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        self._undone = end
        return end

    def computed(self, end: dict[str, Any]) -> list[pa.RecordBatch]:
        batches = [each for task in self.reader.partitions(self._offset, end) for each in self.reader.read(task)]
        for level in range(self.jobs[0].keyed.levels):
            batches = list(LevelRunner(dump_jobs(self.jobs), level)(iter(batches)))
        return batches

    def run(self, end: dict[str, Any]) -> None:
        writer = BlobWriter(self.jobs)
        writer.commit([writer.write(iter(self.computed(end)))], self._batch)

    def done(self) -> None:
        assert self._undone is not None
        (self._checkpoint / "commits" / str(self._batch)).write_text("v1\n{}")
        self._offset, self._undone = self._undone, None
        self._batch += 1

    # --- what may happen ---

    def by_spark(self) -> None:
        if (end := self.plan()) is not None:
            self.run(end)
            self.done()

    def crash_before_the_append(self) -> None:
        if (end := self.plan()) is not None:
            self.computed(end)
        self.start()
        self.few()

    def crash_after_the_append(self) -> None:
        if (end := self.plan()) is not None:
            self.run(end)
        self.start()

    def crash_after_few(self) -> None:
        self.few()
        self.start()

    def few_fails(self) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(few, "_computed", fail)
            self.at_once.latestOffset(self._offset, ReadAllAvailable())
        self.by_spark()

    # --- what must be so ---

    def check(self, held: dict[str, pa.Table]) -> None:
        for job, (name, plan) in zip(self.jobs, self.plans.items(), strict=True):
            if self.log.covered(job.producer.name) is None:
                continue  # a total over nothing has its row from the first batch on
            rows = Topic(self.log, self.log.topic(name)).read()
            weights = rows["_weight"].to_pylist() if "_weight" in rows.column_names else [1] * rows.num_rows
            total: dict[tuple[Any, ...], int] = {}
            for row, weight in zip(rows.select(plan.schema.names).to_pylist(), weights, strict=True):
                (comparable,) = bag(pa.Table.from_pylist([row], plan.schema))
                total[comparable] = total.get(comparable, 0) + weight
            assert min(total.values(), default=0) >= 0, "a row was taken away that was never there"
            found = sorted((row for row, times in total.items() for _ in range(times)), key=repr)
            assert found == answer(plan.oracle, held), name
        for job in self.jobs:
            job.verify(self.log)
            if job.kept is not None:
                _, buckets = newest(Path(job.folder))
                manifests = [told for place in buckets.values() for told in place.values()]
                listed = {id.partition(".")[0] for told in manifests for id in told.ids}
                chunks = Path(job.folder) / "kept" / "chunks"
                there = {file.name for file in chunks.iterdir()} if chunks.exists() else set()
                assert listed <= there
                assert there - listed <= self._merged_since(job), "nothing is left over"

    def _merged_since(self, job: Job) -> set[str]:
        """The files of state that was merged after the last batch, for the next one."""
        standing = self.at_once._few._standing.get(job.producer.name)
        manifests = [told for place in (standing.buckets if standing else {}).values() for told in place.values()]
        return {id.partition(".")[0] for told in manifests for id in told.ids}


WAYS: list[Callable[[House], None]] = [
    House.few,
    House.by_spark,
    House.crash_before_the_append,
    House.crash_after_the_append,
    House.crash_after_few,
    House.few_fails,
]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(few, "LONG_S", 60.0)
    return


@pytest.mark.parametrize("fanout", [2, 8])
@pytest.mark.parametrize("name", VIEWS)
def test_in_any_order_of_ways_the_views_are_the_answers(
    tmp_path: Path, name: str, fanout: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FANOUT", fanout)
    for seed in seeds():
        print(f"seed {seed}")  # noqa: T201
        log = hw.open(f"file:{tmp_path / str(seed)}")
        chance = random.Random(seed)
        house = House(log, tmp_path / str(seed), VIEWS[name])
        for prefix in prefixes(seed, 14):
            append(log, prefix.pushed)
            way = chance.choice([House.few, *WAYS])
            print(way.__name__)  # noqa: T201
            way(house)
            house.check(prefix.held)
        log.close()


def append(log: hw.Log, pushed: dict[str, pa.Table]) -> None:
    """In one append: one batch."""
    parts = []
    for name, rows in pushed.items():
        spec = INPUTS[name]
        for batch in rows.combine_chunks().to_batches():
            parts += [log.stage(name, at, some) for at, some in split(batch, spec.key, spec.partitions).items()]
    log.append(parts)


def click(id: int, n: int) -> dict[str, Any]:
    return {"id": id, "user_id": 1, "n": n, "at": datetime(2026, 1, 1, tzinfo=UTC)}


def test_what_fails_is_left_to_spark_and_the_others_go_on(log: hw.Log, tmp_path: Path) -> None:
    broken = "SELECT user_id, CASE WHEN n = 5 THEN error('five') ELSE n END AS n FROM clicks"
    house = House(log, tmp_path, ["SELECT id, n FROM clicks WHERE n > 1", broken])
    clicks = Topic(log, INPUTS["clicks"])
    clicks.append([click(1, 3)])
    house.few()
    clicks.append([click(2, 5)])
    start = house.at_once.initialOffset()
    end = house.at_once.latestOffset(start, ReadAllAvailable())
    assert list(end["views"]) == [house.jobs[1].producer.name], "for Spark, which tells what is wrong"
    told = few.told(Path(house.jobs[0].query))
    assert told is not None
    assert (told["left"], told["batches"]) == (1, 2)
    covered = [log.covered(job.producer.name) for job in house.jobs]
    assert [each.progress.end.total for each in covered if each is not None] == [2, 1]


def test_state_that_was_merged_for_a_batch_that_failed_is_not_left_over(log: hw.Log, tmp_path: Path) -> None:
    house = House(log, tmp_path, VIEWS["one-level"])
    clicks = Topic(log, INPUTS["clicks"])
    held: list[dict[str, Any]] = []
    while True:
        held.append(click(len(held), 3))
        clicks.append(held[-1:])
        house.few()
        standing = house.at_once._few._standing[house.jobs[0].producer.name]
        if standing.buckets != standing.listed:
            break
        assert len(held) < 100, "merges are under way in some batches"
    held.append(click(len(held), 3))
    clicks.append(held[-1:])
    house.few_fails()
    nothing = {name: spec.schema.empty_table() for name, spec in INPUTS.items()}
    house.check({**nothing, "clicks": pa.Table.from_pylist(held, INPUTS["clicks"].schema)})


def test_what_was_overtaken_appends_nothing(log: hw.Log, tmp_path: Path) -> None:
    house = House(log, tmp_path, VIEWS["one-level"])
    older = house.at_once
    house.start()
    Topic(log, INPUTS["clicks"]).append([click(1, 3)])
    with pytest.raises(Fenced):
        older.latestOffset(older.initialOffset(), ReadAllAvailable())
    house.few()
    assert log.snapshot(["v0"]).position.total == 1


def test_after_batches_that_took_long_spark_has_its_turns(
    log: hw.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(log, tmp_path, VIEWS["no-level"][:1])
    clicks = Topic(log, INPUTS["clicks"])

    def ways() -> Iterator[str]:
        """Of batch after batch, which way it goes."""
        while True:
            clicks.append([click(1, 3)])
            start = house.at_once.initialOffset()
            at_once = house.at_once.latestOffset(start, ReadAllAvailable()) == start
            yield "few" if at_once else "spark"
            house.by_spark()

    way = ways()
    monkeypatch.setattr(few, "LONG_S", 0.0)
    assert [next(way) for _ in range(6)] == ["few", "spark", "few", "spark", "spark", "spark"]
    monkeypatch.setattr(few, "LONG_S", 60.0)
    assert [next(way) for _ in range(3)] == ["few", "few", "few"], "it was only the machine"


def test_a_view_with_much_to_read_goes_to_spark_alone(log: hw.Log, tmp_path: Path) -> None:
    house = House(log, tmp_path, VIEWS["no-level"])
    house.at_once = PackedReader(house.jobs, Limits(few=5))
    Topic(log, INPUTS["clicks"]).append([click(number, 3) for number in range(6)])
    Topic(log, INPUTS["users"]).append([{"user_id": 1, "country": "de", "age": 20}])
    end = house.at_once.latestOffset(house.at_once.initialOffset(), ReadAllAvailable())
    assert list(end["views"]) == [house.jobs[0].producer.name]
    assert log.snapshot(["v1"]).position.total == 1
