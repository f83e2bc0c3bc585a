"""A pipeline: what keeps one derived topic up to date, with a name, a version and a place in the log of its own.

Spark runs it in a query (`process.query`), alone or with others.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import HeadwaterError, PipelineFailed
from headwater.log.position import Epoch, Position
from headwater.log.protocol import Log, Producer, Progress
from headwater.process.checkpoint import BEFORE_FIRST, under_way
from headwater.process.failpoint import Failpoint
from headwater.process.job import Job
from headwater.process.lane import Lane, first_version
from headwater.process.parked import park, parked
from headwater.process.side import dead_topic, late_topic
from headwater.process.sink import pin_inputs
from headwater.process.source import Limits
from headwater.process.userlines import line_in
from headwater.process.version import Version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.process.query import Query

Start = Literal["start", "end"] | Position | datetime
SKIPS = "skips.json"
ROOM_BYTES = 1024 * 1024


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
    """A lane run as the given version of it: over that version's inputs, into its topic, under its name.

    `query` is the folder of the Spark query that it shares with others; without, it has its own.
    """

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
        query: Path | None = None,
    ) -> None:
        self.version = version or first_version(lane)
        self.lane = lane.over(self.version.inputs)
        self.folder = self.version.folder(root)
        self.query_folder = query or self.folder
        self.limits = limits or Limits()
        self.log = log
        self._start = start
        self._failpoint = failpoint
        self._query: Query | None = None

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
        self._probe().verify(self.log)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_topics(None)

    def check(self, session: SparkSession) -> None:
        """What can be refused before anything is started is refused; all output topics are made."""
        self._make_topics(session)

    def _make_topics(self, session: SparkSession | None) -> None:
        probe = self._probe()
        output = self.lane.output(self.topic) if session is None else self.lane.checked(session, probe)
        if output is not None:
            self.log.create(output)
        if self.lane.lateness:
            self.log.create(late_topic(probe))
        if self.lane.dead_letters or probe.skips:
            self.log.create(dead_topic(probe))

    def begin(self) -> Job:
        """Take the epoch, which fences every older run; then all that a query must know."""
        job = self._new_job(self.log.begin(self.producer))
        job = replace(job, begin=self._begin(job))
        job.verify(self.log)  # again: the older run may have gone on until it was fenced
        if job.kept is not None:
            job.kept.sweep(self.log.covered(self.producer))
        pin_inputs(job, job.planned.begins(self.log))  # Spark may run its last batch again
        return job

    def _probe(self) -> Job:
        """A job that is never run."""
        begun = self.log.covered(self.producer, sequence=BEFORE_FIRST)
        return replace(
            self._new_job(Producer(self.producer, Epoch(0))), begin=begun.progress.end if begun else Position()
        )

    def _new_job(self, producer: Producer) -> Job:
        left = parked(self.query_folder, self.producer)
        return Job(
            name=self.lane.name,
            log_url=self.log.url,
            producer=producer,
            topic=self.topic,
            folder=str(self.folder),
            query=str(self.query_folder),
            inputs=self.lane.inputs,
            tables=self.lane.tables,
            lateness=self.lane.lateness,
            parked=left.progress if left is not None else None,
            skips=self.skips(),
            from_retained=self.version.from_retained,
            plan=getattr(self.lane, "plan", None),
            failpoint=self._failpoint,
        )

    def _begin(self, job: Job) -> Position:
        """Where the first batch begins. Elsewhere than at the start, an append without records says so, once."""
        first = self.log.covered(self.producer)
        if first is None and self._start != "start":
            begin = self._resolved(self._start)
            if begin != Position():
                progress = Progress(Position(), begin)
                self.log.append([], producer=job.producer, sequence=BEFORE_FIRST, progress=progress)
            return begin
        begun = self.log.covered(self.producer, sequence=BEFORE_FIRST)
        return begun.progress.end if begun is not None else Position()

    def _resolved(self, start: Start) -> Position:
        if isinstance(start, Position):
            return start.only(self.lane.inputs)
        if isinstance(start, datetime):
            moment = int(start.astimezone(UTC).timestamp() * 1_000_000)
            return Position.of({topic: self.log.position_from(topic, moment) for topic in self.lane.inputs})
        return self.log.snapshot(self.lane.inputs).position

    # --- a query of its own ---

    def start(self, session: SparkSession) -> None:
        from headwater.process.query import Query

        self._query = Query([self])
        self._query.start(session)

    def failure(self) -> HeadwaterError | None:
        failed = self._query.failure() if self._query is not None else None
        return failed.error if failed is not None else None

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.running

    def progress(self) -> list[dict[str, Any]]:
        """What Spark tells of the last batches of this run."""
        return self._query.progress() if self._query is not None else []

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    # --- how it stands ---

    def status(self, batch_s: float | None) -> Status:
        covered = self.log.covered(self.producer)
        done = covered.progress.end if covered else Position()
        newest = self.log.snapshot(self.lane.inputs).position
        late = [f"{self.topic}.late"] if self.lane.lateness else []
        return Status(
            name=self.name,
            rows_in=done.total,
            rows_out=self.log.snapshot([self.topic]).position.total,
            late=self.log.snapshot(late).position.total,
            lag=newest.total - done.total,
            batch=covered.sequence if covered else None,
            batch_s=batch_s,
        )

    def refusal(self, job: Job) -> HeadwaterError | None:
        """Why it could not go on, found out from the log and the checkpoint themselves, not from Spark's words."""
        checks: list[Callable[[], None]] = [
            lambda: self.log.check(job.producer),
            lambda: job.verify(self.log),
        ]
        for check in checks:
            try:
                check()
            except HeadwaterError as error:
                return error
        return None

    def failed(self, job: Job, told: str) -> PipelineFailed:
        """What Spark told, in our words, with the batch that is not done, and its inputs."""
        planned = under_way(job.planned)
        where = line_in(told, self.lane.where)
        why = _cause(told) + _full_disk(self.folder)
        if planned is None:
            return PipelineFailed(pipeline=self.name, why=why, where=where)
        batch, progress = planned
        return PipelineFailed(
            pipeline=self.name, why=why, where=where, batch=batch, start=str(progress.start), end=str(progress.end)
        )

    def park(self, job: Job, error: HeadwaterError) -> None:
        """Let the others of its query go on without it."""
        planned = under_way(job.planned)
        if planned is not None:
            park(self.query_folder, self.producer, planned[1], str(error))

    # --- batches that are skipped by hand ---

    def skips(self) -> tuple[Progress, ...]:
        file = self.folder / SKIPS
        listed = json.loads(file.read_text()) if file.exists() else []
        return tuple(Progress(Position.parse(start), Position.parse(end)) for start, end in listed)

    def skip(self) -> Progress | None:
        """Let the batch that is planned and not done go to the dead letters; None if there is none."""
        probe = self._probe()
        planned = under_way(probe.planned)
        progress = planned[1] if planned is not None else self._left_behind(probe)
        if progress is None:
            return None
        skips = [*self.skips(), progress]
        listed = [[str(skip.start), str(skip.end)] for skip in dict.fromkeys(skips)]
        part = self.folder / f"{SKIPS}.part"
        part.write_text(json.dumps(listed))
        part.replace(self.folder / SKIPS)  # whole or not at all
        return progress

    def _left_behind(self, probe: Job) -> Progress | None:
        covered = self.log.covered(self.producer)
        at = covered.progress.end if covered is not None else Position()
        return probe.parked if probe.parked is not None and probe.parked.start == at else None


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
