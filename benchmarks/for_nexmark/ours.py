"""Our side of Nexmark: each query as a view's pipeline over the same log, into a sink of nothing.

All is as in an app but for the end of a batch, where rows are copied once and dropped instead of appended; the progress
is appended, so exactly once stays on. Warm: each query runs once before it is measured, on a tenth of the events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.log import Topic, TopicSpec
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
    """Of all batches together, without the start of the query."""
    started_s: float
    """From the start of the query to the end of its last batch."""
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
    def __init__(self, folder: Path, blocks: list[Events]) -> None:
        self._folder = folder
        self._logs = {}
        for size, some in (("warm", blocks[: max(1, len(blocks) // 10)]), ("all", blocks)):
            self._logs[size] = _filled(folder / size, some)
        self._events = {"warm": blocks[max(1, len(blocks) // 10) - 1].end, "all": blocks[-1].end}
        self._spark = spark_session("nexmark", words=folder / "spark.log")

    def measure(self, query: str, *, batch_rows: int) -> Figures:
        plan = plan_view(query, QUERIES[query].sql, SPECS, key=QUERIES[query].key or None)
        self._run("warm", plan, batch_rows)
        seconds, started, batches = self._run("all", plan, batch_rows)
        source, _, _ = self._run("all", _only_read(plan), batch_rows)
        return Figures(self._events["all"], seconds, started, source, batches)

    def _run(self, size: str, plan: Plan, batch_rows: int) -> tuple[float, float, int]:
        log = self._logs[size]
        pipeline = Pipeline(IntoNothing(plan), log, self._folder / size, limits=Limits(rows=batch_rows))
        pipeline.prepare()
        goal = log.snapshot(pipeline.lane.inputs).position
        began = time.monotonic()
        pipeline.start(self._spark)
        try:
            while True:
                covered = log.covered(pipeline.producer)
                if covered is not None and covered.progress.end.covers(goal):
                    break
                failure = pipeline.failure()
                if failure is not None:
                    raise failure
                assert time.monotonic() - began < WITHIN_S, f"{plan.view} took longer than {WITHIN_S:g} s"
                time.sleep(0.005)
            ended = time.monotonic() - began
            told = _told(pipeline, covered.sequence)
        finally:
            pipeline.stop()
        return sum(each["durationMs"]["triggerExecution"] for each in told) / 1000, ended, len(told)

    def close(self) -> None:
        self._spark.stop()
        for log in self._logs.values():
            log.close()


def _told(pipeline: Pipeline, last: int) -> list[dict[str, Any]]:
    """What Spark tells of all batches up to the last one; it tells a little later than it is through."""
    give_up_at = time.monotonic() + 30
    while True:
        told = [each for each in pipeline.progress() if each["durationMs"].get("addBatch")]
        if told and told[-1]["batchId"] >= last:
            return told
        assert time.monotonic() < give_up_at, "Spark does not tell of its batches"
        time.sleep(0.02)


def _filled(folder: Path, blocks: list[Events]) -> hw.Log:
    log = hw.open(f"file:{folder / 'log'}")
    topics = {name: Topic(log, log.create(spec)) for name, spec in SPECS.items()}
    topics["side_input"].append(side_input())
    for block in blocks:
        for name in ("person", "auction", "bid"):
            topics[name].append(getattr(block, name))
    return log


def _only_read(plan: Plan) -> Plan:
    """Reads the same columns of the same topics, looks at them, and sends nothing on."""
    reads = tuple(
        Read(read.topic, read.columns, (Send(f"FROM {CHANGES} WHERE hash(*COLUMNS(*)) = 42", ()),), read.metadata)
        for read in plan.reads
    )
    return replace(plan, view=f"{plan.view}_source", reads=reads, nodes=())
