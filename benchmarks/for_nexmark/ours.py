"""Our side of Nexmark: each query as a view's pipeline over the same log, into a sink of nothing.

All is as in an app but for the end of a batch, where rows are copied once and dropped instead of appended; the progress
is appended, so exactly once stays on.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.process.hold import holding
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


@dataclass(frozen=True)
class Figures:
    events: int
    seconds: float
    """Of all batches together but those that warmed the query up."""
    source_seconds: float
    batches: int


@dataclass(frozen=True)
class IntoNothing(KeyedLane):
    def query(
        self, session: SparkSession, jobs: Sequence[Job], limits: Limits, dropped: frozenset[str]
    ) -> DataStreamWriter:
        return super().query(session, [replace(job, dropping=True) for job in jobs], limits, dropped)


SPECS = {
    name: TopicSpec(name, schema, key=("key",), kind="table")
    if name == "side_input"
    else TopicSpec(name, schema, time="date_time")
    for name, schema in TOPICS.items()
}


class Ours:
    """Each run is a log of its own: the first block warms a query up, then the others are there at once."""

    def __init__(self, folder: Path, blocks: list[Events]) -> None:
        self._folder = folder
        self._blocks = blocks
        self._events = blocks[-1].end - blocks[0].end
        self._runs = itertools.count()
        self._spark = spark_session("nexmark", words=folder / "spark.log")

    def measure(self, query: str, *, batch_rows: int | None, rounds: int = 2) -> Figures:
        """The fastest of so many rounds; of the peer it is that of three."""
        plan = plan_view(query, QUERIES[query].sql, SPECS, key=QUERIES[query].key or None)
        seconds, batches = min(self._run(plan, batch_rows) for _ in range(rounds))
        source, _ = self._run(_only_read(plan), batch_rows)
        return Figures(self._events, seconds, source, batches)

    def _run(self, plan: Plan, batch_rows: int | None) -> tuple[float, int]:
        folder = self._folder / f"{plan.view}-{next(self._runs)}"
        log = hw.open(f"file:{folder / 'log'}")
        pipeline = Pipeline(IntoNothing(plan), log, folder, limits=Limits(rows=batch_rows))
        topics = {name: Topic(log, log.create(spec)) for name, spec in SPECS.items()}
        topics["side_input"].append(side_input())
        try:
            pipeline.prepare()
            _append(topics, self._blocks[:1])
            pipeline.start(self._spark)
            warm = _through(log, pipeline)
            with holding(folder / "pipelines"):  # it plans no batch meanwhile
                _append(topics, self._blocks[1:])
            last = _through(log, pipeline)
            told = [each for each in _told(pipeline, last) if each["batchId"] > warm]
        finally:
            pipeline.stop()
            log.close()
            shutil.rmtree(folder)
        return sum(each["durationMs"]["triggerExecution"] for each in told) / 1000, len(told)

    def close(self) -> None:
        self._spark.stop()


def _append(topics: Mapping[str, Topic], blocks: list[Events]) -> None:
    for block in blocks:
        for name in ("person", "auction", "bid"):
            topics[name].append(getattr(block, name))


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
