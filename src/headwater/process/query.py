"""A Spark query and the pipelines that it keeps up to date: one, or several that share it.

Each has its own identity, position and state, so one that fails is parked where it is: the query starts again without
it, and runs the batch that failed for the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.process.blame import to_blame
from headwater.process.checkpoint import clear_if_unused, last_batch
from headwater.process.hold import holding
from headwater.process.job import Job
from headwater.process.keyed import few, parcels
from headwater.process.keyed.offsets import leave_behind
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_RESTARTS = 5
SOURCES_S = 30.0
FINISH_S = 10.0
PLANNED_S = 0.2
"""What was decided before the hold is planned within this time."""
_NO_WORKER = "Python worker failed to connect back"


@dataclass(frozen=True)
class Failed:
    error: HeadwaterError
    pipeline: Pipeline | None
    """The one that can be parked: it alone failed, by itself."""


def _moment(told: str) -> float:
    return datetime.fromisoformat(told).timestamp()


class Query:
    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        self._pipelines = list(pipelines)
        self._jobs: dict[str, Job] = {}
        self._query: StreamingQuery | None = None
        self._restarts = 0

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """Those that are not parked."""
        return tuple(self._pipelines)

    def start(self, session: SparkSession) -> None:
        local = (session.sparkContext.master or "").startswith("local")
        jobs = [replace(pipeline.begin(), local=local) for pipeline in self._pipelines]
        self._jobs = {job.producer.name: job for job in jobs}
        first = self._pipelines[0]
        clear_if_unused(jobs[0].checkpoint)
        few.clear(first.query_folder)
        if first.lane.depth is not None:
            leave_behind(jobs[0].checkpoint, self._jobs)
            parcels.remove(first.query_folder)
        limits = replace(
            first.limits,
            rows=min(each.limits.rows or each.lane.batch_rows for each in self._pipelines),
            cores=session.sparkContext.defaultParallelism,
        )
        writer = first.lane.query(session, jobs, limits)
        name = first.producer if len(jobs) == 1 else first.query_folder.name
        self._query = writer.option("checkpointLocation", str(jobs[0].checkpoint)).queryName(name).start()
        self._await_sources()

    def _await_sources(self) -> None:
        """Until the query's own Python process answers: several that start at once keep each other from it."""
        deadline = time.monotonic() + SOURCES_S
        while self._query is not None and self._query.isActive and time.monotonic() < deadline:
            if self._query.status["message"] not in ("Initializing StreamExecution", "Initializing sources"):
                return
            time.sleep(0.02)

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def batch_s(self) -> float | None:
        """How long the last batch took."""
        by_spark = [each for each in self.progress() if "addBatch" in each["durationMs"]][-1:]
        at_once = few.told(self._pipelines[0].query_folder)
        if at_once is not None and (not by_spark or _moment(by_spark[0]["timestamp"]) < at_once["at"]):
            return float(at_once["batch_s"])
        return by_spark[0]["durationMs"]["triggerExecution"] / 1000 if by_spark else None

    def progress(self) -> list[dict[str, Any]]:
        """What Spark tells of the last batches of this run."""
        return [dict(each) for each in self._query.recentProgress] if self._query is not None else []

    def failure(self) -> Failed | None:
        if self._query is None or self._query.isActive:
            return None
        told = self._query.exception()
        if told is None:
            return None
        for pipeline in self._pipelines:
            refusal = pipeline.refusal(self._jobs[pipeline.producer])
            if refusal is not None:
                return Failed(refusal, None)
        name = to_blame(str(told))
        by_name = {pipeline.producer: pipeline for pipeline in self._pipelines}
        pipeline = by_name.get(name or "", self._pipelines[0])
        error = pipeline.failed(self._jobs[pipeline.producer], str(told))
        return Failed(error, pipeline if name in by_name and len(by_name) > 1 else None)

    def park(self, failed: Failed, session: SparkSession) -> None:
        """Go on without the one that failed."""
        assert failed.pipeline is not None
        failed.pipeline.park(self._jobs[failed.pipeline.producer], failed.error)
        self._pipelines.remove(failed.pipeline)
        self.start(session)

    def start_again(self, session: SparkSession) -> bool:
        """After a failure that passes by itself; False if it was another, or once too often.

        Spark gives a Python process ten seconds to start, whatever else the machine has to do.
        """
        told = self._query.exception() if self._query is not None else None
        if told is None or _NO_WORKER not in str(told) or self._restarts >= MOST_RESTARTS:
            return False
        self._restarts += 1
        self.start(session)
        return True

    def finish(self) -> None:
        """Let the batch under way come to its end, and stop: who is not there the next time leaves nothing undone."""
        first = self._pipelines[0]
        checkpoint = first.query_folder / "checkpoint"
        deadline, quiet_since, before = time.monotonic() + FINISH_S, time.monotonic(), None
        with holding(first.folder.parents[1]):  # it plans no other batch
            while self.running and time.monotonic() < deadline:
                now = last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits")
                if now != before:
                    before, quiet_since = now, time.monotonic()
                elif now[0] == now[1] and time.monotonic() - quiet_since > PLANNED_S:
                    break
                time.sleep(0.02)
            self.stop()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
