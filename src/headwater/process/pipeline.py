"""A pipeline: the named Spark query that keeps one derived topic up to date."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import HeadwaterError, PipelineFailed
from headwater.log.position import Epoch, Position
from headwater.log.protocol import Log, Producer, Progress
from headwater.process.checkpoint import BEFORE_FIRST, Checkpoint
from headwater.process.failpoint import Failpoint
from headwater.process.job import Job
from headwater.process.lane import Lane, first_version
from headwater.process.side import dead_topic, late_topic
from headwater.process.sink import pin_inputs
from headwater.process.source import Limits
from headwater.process.userlines import line_in
from headwater.process.version import Version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Start = Literal["start", "end"] | Position | datetime
SKIPS = "skips.json"
MOST_RESTARTS = 5
SOURCES_S = 30.0
ROOM_BYTES = 1024 * 1024
_NO_WORKER = "Python worker failed to connect back"


@dataclass(frozen=True)
class Status:
    """How a pipeline stands. Rows are counted since the beginning of its topics; `lag` is what it has yet to read."""

    name: str
    rows_in: int
    rows_out: int
    late: int
    """Of those that came in, how many were too late and went aside."""
    lag: int
    batch: int | None
    batch_s: float | None
    """How long the last batch took."""


class Pipeline:
    """A lane run as the given version of it: over that version's inputs, into its topic, under its name."""

    def __init__(
        self,
        lane: Lane,
        log: Log,
        root: Path,
        *,
        version: Version | None = None,
        limits: Limits | None = None,
        start: Start = "start",
        failpoint: Failpoint | None = None,
    ) -> None:
        self.version = version or first_version(lane)
        self.lane = lane.over(self.version.inputs)
        self.folder = self.version.folder(root)
        self._log = log
        self._limits = limits or Limits()
        self._start = start
        self._failpoint = failpoint
        self._query: StreamingQuery | None = None
        self._job: Job | None = None
        self._restarts = 0

    @property
    def name(self) -> str:
        return self.lane.name

    @property
    def topic(self) -> str:
        return self.version.topic

    @property
    def producer(self) -> str:
        return self.version.producer

    def prepare(self) -> None:
        """What can be refused without Spark is refused: a checkpoint that does not match the log."""
        Checkpoint(self.folder / "checkpoint").verify(self._log, self.producer)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_topics(None)

    def check(self, session: SparkSession) -> None:
        """What can be refused before anything is started is refused; all output topics are made."""
        self._make_topics(session)

    def _make_topics(self, session: SparkSession | None) -> None:
        probe = self._new_job(Producer(self.producer, Epoch(0)))
        output = self.lane.output(self.topic) if session is None else self.lane.checked(session, probe)
        if output is not None:
            self._log.create(output)
        if self.lane.lateness:
            self._log.create(late_topic(probe))
        if self.lane.dead_letters or probe.skips:
            self._log.create(dead_topic(probe))

    def start(self, session: SparkSession) -> None:
        """Take the epoch, which fences every older run, then start the query."""
        job = self._new_job(self._log.begin(self.producer))
        job = self._job = replace(job, begin=self._begin(job))
        checkpoint = Checkpoint(job.checkpoint, job.begin)
        checkpoint.verify(self._log, self.producer)  # again: the older run may have gone on until it was fenced
        # Spark may run its last batch again: what that read must stay until a later one is through.
        planned = checkpoint.last_planned()
        before = checkpoint.end(planned - 1 if planned is not None else -1)
        pin_inputs(job, before.position, before.number)
        limits = replace(self._limits, cores=session.sparkContext.defaultParallelism)
        writer = self.lane.query(session, job, limits)
        self._query = writer.option("checkpointLocation", str(job.checkpoint)).queryName(self.producer).start()
        self._await_sources()

    def _await_sources(self) -> None:
        """Until the query's own Python process answers: several that start at once keep each other from it."""
        deadline = time.monotonic() + SOURCES_S
        while self._query is not None and self._query.isActive and time.monotonic() < deadline:
            if self._query.status["message"] not in ("Initializing StreamExecution", "Initializing sources"):
                return
            time.sleep(0.02)

    def _new_job(self, producer: Producer) -> Job:
        return Job(
            name=self.lane.name,
            log_url=self._log.url,
            producer=producer,
            topic=self.topic,
            folder=str(self.folder),
            inputs=self.lane.inputs,
            tables=self.lane.tables,
            lateness=self.lane.lateness,
            skips=self.skips(),
            from_retained=self.version.from_retained,
            plan=getattr(self.lane, "plan", None),
            failpoint=self._failpoint,
        )

    def _begin(self, job: Job) -> Position:
        """Where the first batch begins. Elsewhere than at the start, an append without records says so, once."""
        first = self._log.covered(self.producer)
        if first is None and self._start != "start":
            begin = self._resolved(self._start)
            if begin != Position():
                progress = Progress(Position(), begin)
                self._log.append([], producer=job.producer, sequence=BEFORE_FIRST, progress=progress)
            return begin
        begun = self._log.covered(self.producer, sequence=BEFORE_FIRST)
        return begun.progress.end if begun is not None else Position()

    def _resolved(self, start: Start) -> Position:
        if isinstance(start, Position):
            return start.only(self.lane.inputs)
        if isinstance(start, datetime):
            moment = int(start.astimezone(UTC).timestamp() * 1_000_000)
            return Position.of({topic: self._log.position_from(topic, moment) for topic in self.lane.inputs})
        return self._log.snapshot(self.lane.inputs).position

    # --- while it runs ---

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def status(self) -> Status:
        covered = self._log.covered(self.producer)
        done = covered.progress.end if covered else Position()
        newest = self._log.snapshot(self.lane.inputs).position
        told = self._query.lastProgress if self._query is not None else None
        late = [f"{self.topic}.late"] if self.lane.lateness else []
        return Status(
            name=self.name,
            rows_in=done.total,
            rows_out=self._log.snapshot([self.topic]).position.total,
            late=self._log.snapshot(late).position.total,
            lag=newest.total - done.total,
            batch=covered.sequence if covered else None,
            batch_s=told["durationMs"].get("triggerExecution", 0) / 1000 if told else None,
        )

    def progress(self) -> list[dict[str, Any]]:
        """What Spark tells of the last batches of this run."""
        return [dict(each) for each in self._query.recentProgress] if self._query is not None else []

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

    def failure(self) -> HeadwaterError | None:
        """Why the query ended, found out from the log and the checkpoint themselves, not from Spark's words."""
        if self._query is None or self._job is None or self._query.isActive:
            return None
        told = self._query.exception()
        if told is None:
            return None
        job = self._job
        checks: list[Callable[[], None]] = [
            lambda: self._log.check(job.producer),
            lambda: Checkpoint(job.checkpoint, job.begin).verify(self._log, self.producer),
        ]
        for check in checks:
            try:
                check()
            except HeadwaterError as error:
                return error
        where = line_in(str(told), self.lane.where)
        why = _cause(str(told)) + _full_disk(self.folder)
        return PipelineFailed(pipeline=self.name, why=why, where=where, **self._planned())

    def _planned(self) -> dict[str, Any]:
        """The batch that is not done, and its inputs."""
        assert self._job is not None
        checkpoint = Checkpoint(self._job.checkpoint, self._job.begin)
        planned = checkpoint.last_planned()
        if planned is None or planned == checkpoint.last_done():
            return {}
        progress = checkpoint.progress(planned)
        return {"batch": planned, "start": str(progress.start), "end": str(progress.end)}

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    # --- batches that are skipped by hand ---

    def skips(self) -> tuple[Progress, ...]:
        file = self.folder / SKIPS
        listed = json.loads(file.read_text()) if file.exists() else []
        return tuple(Progress(Position.parse(start), Position.parse(end)) for start, end in listed)

    def skip(self) -> Progress | None:
        """Let the batch that is planned and not done go to the dead letters; None if there is none."""
        begun = self._log.covered(self.producer, sequence=BEFORE_FIRST)
        begin = begun.progress.end if begun is not None else Position()
        checkpoint = Checkpoint(self.folder / "checkpoint", begin)
        planned = checkpoint.last_planned()
        if planned is None or planned == checkpoint.last_done():
            return None
        progress = checkpoint.progress(planned)
        skips = [*self.skips(), progress]
        listed = [[str(skip.start), str(skip.end)] for skip in dict.fromkeys(skips)]
        part = self.folder / f"{SKIPS}.part"
        part.write_text(json.dumps(listed))
        part.replace(self.folder / SKIPS)  # whole or not at all
        return progress


def _full_disk(folder: Path) -> str:
    """Whoever finds that there is no room does not always say where."""
    left = shutil.disk_usage(folder).free
    return f" (the disk with {folder} is full: {left} bytes are left)" if left < ROOM_BYTES else ""


def _cause(told: str) -> str:
    """Of a Java stack with a Python traceback inside, the Python part's last line; else the first line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    python = [number for number, line in enumerate(lines) if line.startswith("File ")]
    after = [line for line in lines[python[-1] + 1 :] if not line.startswith("at ")] if python else []
    errors = [line for line in after if ": " in line or line.endswith(("Error", "Exception"))]
    return (errors or lines or ["unknown"])[0]
