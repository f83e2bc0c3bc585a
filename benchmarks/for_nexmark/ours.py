"""Our side of Nexmark: each query as a view's pipeline over the same log, into a sink of nothing.

All is as in an app but for the end of a batch, where rows are copied once and dropped instead of appended; the progress
is appended, so exactly once stays on. And every batch is one of Spark's: the first one is there to warm up the way that
the others go, which of a query that reads little would be one of few records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.log.cuts import ask
from headwater.process.job import Job
from headwater.process.keyed.lane import KeyedLane
from headwater.process.pipeline import Pipeline
from headwater.process.plan import CHANGES, Plan, Read, Send
from headwater.process.session import spark_session
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from headwater.testing.nexmark.events import TOPICS, Events, side_input
from headwater.testing.nexmark.queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WITHIN_S = 600.0
WARM_S = 6 * 3600.0
"""So long pipelines look for the cut that ends the batch which warms them up."""


@dataclass(frozen=True)
class Figures:
    events: int
    seconds: float
    """Of all batches together but those that warmed the query up."""
    source_seconds: float
    batches: int


@dataclass(frozen=True)
class IntoNothing(KeyedLane):
    def query(self, session: SparkSession, jobs: Sequence[Job], limits: Limits) -> DataStreamWriter:
        return super().query(session, [replace(job, dropping=True) for job in jobs], limits)


SPECS = {
    name: TopicSpec(name, schema, key=("key",), kind="table")
    if name == "side_input"
    else TopicSpec(name, schema, time="date_time")
    for name, schema in TOPICS.items()
}


class Ours:
    """One log for all runs, each of which is a pipeline of its own name. A cut after the first block ends its first
    batch there, which warms the query up; then the others are there at once."""

    def __init__(self, folder: Path, queries: Sequence[str], *, rounds: int = 3) -> None:
        plans = {name: plan_view(name, QUERIES[name].sql, SPECS, key=QUERIES[name].key or None) for name in queries}
        self._runs = {
            name: [replace(each, view=f"{each.view}_{number}") for number, each in enumerate([plan] * (rounds + 1))]
            for name, plan in plans.items()
        }
        self._reads = {name: list(map(_only_read, runs)) for name, runs in self._runs.items()}
        self._folder = folder
        self._log = hw.open(f"file:{folder / 'log'}")
        self._topics = {name: Topic(self._log, self._log.create(spec)) for name, spec in SPECS.items()}
        self._topics["side_input"].append(side_input())
        self._events = 0
        self._spark = spark_session("nexmark", words=folder / "spark.log")

    def appended(self, blocks: Iterable[Events]) -> Iterator[Events]:
        """The same blocks, each of them once it is in the log."""
        for number, block in enumerate(blocks):
            for name in ("person", "auction", "bid"):
                self._topics[name].append(getattr(block, name))
            if number == 0:
                ask(self._log, [self._pipeline(plan, None).producer for plan in self._plans()], timeout_s=WARM_S)
                self._events -= block.end
            yield block
        self._events += block.end

    def _plans(self) -> Iterator[Plan]:
        for plans in (*self._runs.values(), *self._reads.values()):
            yield from plans

    def measure(self, query: str, *, batch_rows: int | None) -> Figures:
        """The fastest of so many rounds, after one that warms up: as the peer is measured."""
        seconds, batches = min([self._run(plan, batch_rows) for plan in self._runs[query]][1:])
        source, _ = min([self._run(plan, batch_rows) for plan in self._reads[query]][1:])
        return Figures(self._events, seconds, source, batches)

    def _pipeline(self, plan: Plan, batch_rows: int | None) -> Pipeline:
        return Pipeline(IntoNothing(plan), self._log, self._folder, limits=Limits(rows=batch_rows, few=0))

    def _run(self, plan: Plan, batch_rows: int | None) -> tuple[float, int]:
        pipeline = self._pipeline(plan, batch_rows)
        try:
            pipeline.prepare()
            pipeline.start(self._spark)
            last = _through(self._log, pipeline)
            told = [each for each in _told(pipeline, last) if each["batchId"] > 0]
        finally:
            pipeline.stop()
            shutil.rmtree(pipeline.folder)
        assert told, "a cut ends the first batch"
        return sum(each["durationMs"]["triggerExecution"] for each in told) / 1000, len(told)

    def close(self) -> None:
        self._spark.stop()
        self._log.close()


def _through(log: hw.Log, pipeline: Pipeline) -> int:
    """Until all is covered; the number of the batch that did."""
    goal = log.snapshot(pipeline.lane.inputs).position
    began = time.monotonic()
    while True:
        covered = log.covered(pipeline.producer)
        if covered is not None and covered.progress.end.covers(goal):
            return covered.sequence
        failure = pipeline.failure()
        if failure is not None:
            raise failure
        assert time.monotonic() - began < WITHIN_S, f"{pipeline.name} took longer than {WITHIN_S:g} s"
        time.sleep(0.005)


def _told(pipeline: Pipeline, last: int) -> list[dict[str, Any]]:
    """What Spark tells of all batches up to the last one; it tells a little later than it is through."""
    give_up_at = time.monotonic() + 30
    while True:
        told = [each for each in pipeline.progress() if each["durationMs"].get("addBatch")]
        if told and told[-1]["batchId"] >= last:
            return told
        assert time.monotonic() < give_up_at, "Spark does not tell of its batches"
        time.sleep(0.02)


def _only_read(plan: Plan) -> Plan:
    """Reads the same columns of the same topics, looks at them, and sends nothing on."""
    reads = tuple(
        Read(read.topic, read.columns, (Send(f"FROM {CHANGES} WHERE hash(*COLUMNS(*)) = 42", ()),), read.metadata)
        for read in plan.reads
    )
    return replace(plan, view=f"{plan.view}_source", reads=reads, nodes=())
