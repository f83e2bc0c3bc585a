"""A pipeline: the named Spark query that keeps one view's topic up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, PipelineFailed, PlanChanged
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.process.checkpoint import Checkpoint
from headwater.process.job import Job
from headwater.process.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_ROWS = 1_000_000
"""Rows of all inputs in one batch; an append larger than this is a batch of its own."""


def output_topic(plan: Plan) -> TopicSpec:
    return TopicSpec(plan.view, plan.schema, key=plan.key, kind="table", partitions=plan.buckets)


def producer_name(plan: Plan) -> str:
    return f"{plan.view}@{plan.fingerprint()}"


class Pipeline:
    def __init__(self, plan: Plan, log: Log, folder: Path, *, max_rows: int = MAX_ROWS) -> None:
        self.plan = plan
        self._log = log
        self._folder = folder / plan.view / plan.fingerprint()
        self._max_rows = max_rows
        self._query: StreamingQuery | None = None
        self._job: Job | None = None

    def prepare(self) -> None:
        """Make the output topic; refuse a plan that is not the one the topic was built with."""
        others = [each.name for each in self._folder.parent.glob("*") if each.name != self._folder.name]
        if others and not self._folder.exists():
            raise PlanChanged(
                view=self.plan.view, details=(f"it was built as {others[0]}, it is now {self._folder.name}",)
            )
        self._log.create(output_topic(self.plan))
        Checkpoint(self._folder / "checkpoint").verify(self._log, producer_name(self.plan))
        self._folder.mkdir(parents=True, exist_ok=True)

    def start(self, session: SparkSession) -> None:
        """Take the epoch, which fences every older run, then start the query."""
        from headwater.process.keyed.runner import OUTPUT, BucketProcessor

        plan = self.plan
        job = self._job = Job(
            plan, self._log.url, self._log.begin(producer_name(plan)), topic=plan.view, folder=str(self._folder)
        )
        done = self._log.covered(job.producer.name)
        # Spark may run its last batch again: what that read must stay until a later one is through (see LogWriter).
        self._log.pin(job.producer.name, done.progress.start if done else Position(), topics=job.inputs)
        cores = session.sparkContext.defaultParallelism
        frame = (
            session.readStream.format("headwater-packed")
            .option("job", job.dump())
            .option("maxrows", str(self._max_rows))
            .option("cores", str(cores))
            .load()
        )
        for level in range(len(plan.levels)):
            processor = BucketProcessor(job, level)
            frame = frame.groupBy("bucket").transformWithStateInPandas(processor, OUTPUT, "Append", "None")
        self._query = (
            frame.select("bucket", "data")
            .writeStream.format("headwater-log")
            .option("job", job.dump())
            .option("checkpointLocation", str(job.checkpoint))
            .queryName(f"{plan.view}@{plan.fingerprint()}")
            .outputMode("append")
            .start()
        )

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def failure(self) -> HeadwaterError | None:
        """Why the query ended, found out from the log and the checkpoint themselves, not from Spark's words."""
        if self._query is None or self._job is None or self._query.isActive:
            return None
        told = self._query.exception()
        if told is None:
            return None
        checks: list[Callable[[], None]] = [
            lambda: self._log.check(self._job.producer) if self._job else None,
            lambda: Checkpoint(self._folder / "checkpoint").verify(self._log, producer_name(self.plan)),
        ]
        for check in checks:
            try:
                check()
            except HeadwaterError as error:
                return error
        return PipelineFailed(pipeline=self.plan.view, why=_cause(str(told)))

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()


def _cause(told: str) -> str:
    """Of a Java stack with a Python traceback inside, the Python part's last line; else the first line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    python = [number for number, line in enumerate(lines) if line.startswith("File ")]
    after = [line for line in lines[python[-1] + 1 :] if not line.startswith("at ")] if python else []
    errors = [line for line in after if ": " in line or line.endswith(("Error", "Exception"))]
    return (errors or lines or ["unknown"])[0]
