"""The keyed lane: a plan's levels as one chain of `transformWithState`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.log.spec import TopicSpec
from headwater.process.job import Job
from headwater.process.plan import Plan
from headwater.process.source import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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
    def tables(self) -> tuple[str, ...]:
        return ()

    def described(self) -> dict[str, Any]:
        lateness = [list(each) for each in self.lateness]
        return {**self.plan.described(), **({"lateness": lateness} if lateness else {})}

    def over(self, topics: Mapping[str, str]) -> KeyedLane:
        lateness = tuple((topics.get(topic, topic), micros) for topic, micros in self.lateness)
        return replace(self, plan=self.plan.over(topics), lateness=lateness)

    def output(self, topic: str) -> TopicSpec:
        return TopicSpec(topic, self.plan.schema, key=self.plan.key, kind="table", partitions=self.plan.buckets)

    def checked(self, session: SparkSession, probe: Job) -> TopicSpec:
        return self.output(probe.topic)

    def query(self, session: SparkSession, job: Job, limits: Limits) -> DataStreamWriter:
        from headwater.process.keyed.runner import OUTPUT, BucketProcessor

        reader = session.readStream.format("headwater-packed").option("job", job.dump())
        frame = reader.options(**limits.options()).load()
        for level in range(self.plan.levels):
            processor = BucketProcessor(job, level)
            frame = frame.groupBy("bucket").transformWithStateInPandas(processor, OUTPUT, "Append", "None")
        return frame.writeStream.format("headwater-blobs").option("job", job.dump()).outputMode("append")
