"""The keyed lane: a plan's levels as one chain of shuffles, which plans of as many levels can share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.log.spec import Settings, TopicSpec
from headwater.process.job import Job, dump_jobs
from headwater.process.plan import Plan
from headwater.process.source import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 2_000_000
MOST_ROWS = 8_000_000
VALUES = 20_000_000
"""What a batch with state reads of its widest input at most, unless that are fewer than ROWS rows."""
HISTORY_S = 600.0
"""How long a view's changes stay as they were made: so long may its followers be away."""


@dataclass(frozen=True)
class KeyedLane:
    plan: Plan
    lateness: tuple[tuple[str, int], ...] = ()
    dead_letters: bool = False
    where: str | None = None

    @property
    def name(self) -> str:
        return self.plan.view

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(read.topic for read in self.plan.reads))

    @property
    def depth(self) -> int | None:
        return self.plan.levels

    @property
    def tables(self) -> tuple[str, ...]:
        return ()

    def described(self) -> dict[str, Any]:
        lateness = [list(each) for each in self.lateness]
        return {**self.plan.described(), **({"lateness": lateness} if lateness else {})}

    def over(self, topics: Mapping[str, str]) -> KeyedLane:
        lateness = tuple((topics.get(topic, topic), micros) for topic, micros in self.lateness)
        return replace(self, plan=self.plan.over(topics), lateness=lateness)

    def output(self, topic: str) -> TopicSpec:
        return TopicSpec(
            topic,
            self.plan.schema,
            key=self.plan.key,
            kind="table",
            partitions=self.plan.buckets,
            settings=Settings(history_s=HISTORY_S),
        )

    def checked(self, session: SparkSession, probe: Job) -> TopicSpec:
        return self.output(probe.topic)

    @property
    def batch_rows(self) -> int:
        """The fixed cost of a batch is most of what simple queries take, so it has as many rows as go into memory: more
        of few columns. One without state is never in memory as a whole."""
        if not self.plan.levels:
            return MOST_ROWS
        widest = max(len(read.columns) for read in self.plan.reads)
        return min(max(VALUES // max(widest, 1), ROWS), MOST_ROWS)

    def query(self, session: SparkSession, jobs: Sequence[Job], limits: Limits) -> DataStreamWriter:
        from headwater.process.keyed.runner import LevelRunner
        from headwater.process.keyed.travel import COLUMNS

        told = dump_jobs(jobs)
        reader = session.readStream.format("headwater-packed").option("jobs", told)
        frame = reader.options(**limits.options()).load()
        # Said as a number, or Spark would put all into one task: of most rows it sees only the names of their files.
        ways = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
        for level in range(self.plan.levels):
            frame = frame.repartition(ways, "bucket").mapInArrow(LevelRunner(told, level), COLUMNS)
        return frame.writeStream.format("headwater-blobs").option("jobs", told).outputMode("append")
