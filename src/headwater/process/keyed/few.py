"""A batch with few records, run in the process that would plan it: no job of Spark's, no task, no shuffle.

What makes a batch count is the view's append, with its progress and the list of its state. Spark has no part in that,
so it need not have one in the rest: it is left out where it would take longer than the batch itself, and hears of no
news. If such a batch fails before its append, Spark gets it as it was planned: what fails there is told, parked and
skipped as any other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.log.protocol import Part
from headwater.process.blame import blamed_on
from headwater.process.hold import batch_unless_held
from headwater.process.job import Job
from headwater.process.keyed.appending import Standing, append_view
from headwater.process.keyed.bucket import ANSWER, DEAD, together
from headwater.process.keyed.keeping import Buckets, BucketState, Manifests, held, place
from headwater.process.keyed.offsets import Entry
from headwater.process.keyed.packing import copied
from headwater.process.keyed.pending import PendingChunks
from headwater.process.keyed.reading import Reading, Scanned, Task, leaving_source
from headwater.process.keyed.through import Places, deliver, through, ways_of
from headwater.process.keyed.travel import staged
from headwater.process.lateness import watermark

LONG_S = 1.0
"""A batch that takes so long on one core is better shared by tasks of Spark's."""
MOST_TURNS = 64
TOLD = "few.json"


@dataclass(frozen=True)
class _Computed:
    parts: list[Part]
    changed: Buckets
    states: Mapping[str, BucketState]


class FewRecords:
    def __init__(self, jobs: Sequence[Job], reading: Reading, most: int) -> None:
        self._jobs = {job.producer.name: (view, job) for view, job in enumerate(jobs)}
        self._reading = reading
        self._most = most
        self._long = 0
        """How many batches in a row took long."""
        self._turns = 0
        """How many batches Spark is to run before it is tried again here: perhaps only the machine was slow."""
        self._standing: dict[str, Standing] = {}
        """By producer, what its next batch begins with, if it is one of few records again."""
        self._told: dict[str, Any] = {"batches": 0, "left": 0, "failed": None}

    def run(self, news: Mapping[str, Entry], pipelines: Path) -> Mapping[str, Entry]:
        """Those of the views, by producer, that Spark is to run."""
        chosen = self._chosen(news)
        large = {name: entry for name, entry in news.items() if name not in chosen}
        if not chosen:
            return large
        with batch_unless_held(pipelines) as free:
            if not free:
                return {}
            began = time.monotonic()
            left = self._run(chosen)
            self._took(time.monotonic() - began)
        return {**large, **left}

    def _chosen(self, news: Mapping[str, Entry]) -> dict[str, Entry]:
        """Those with the fewest records, as long as they are few together."""
        if news and self._turns:
            self._turns -= 1
            return {}
        chosen: dict[str, Entry] = {}
        left = self._most
        for name, entry in sorted(news.items(), key=lambda each: _records(each[1])):
            left -= _records(entry)
            if left >= 0:
                chosen[name] = entry
        return chosen

    def _run(self, news: Mapping[str, Entry]) -> dict[str, Entry]:
        left: dict[str, Entry] = {}
        planned = {self._jobs[name][0]: entry.progress for name, entry in news.items()}
        try:
            (task,) = self._reading.tasks(planned, cores=1)
            scanned = self._reading.scanned(task.ranges)
        except Exception as error:  # noqa: BLE001  Spark meets it, too, and tells it
            return self._left(dict(news), error)
        for name, entry in news.items():
            view, job = self._jobs[name]
            begun = None
            try:
                begun = self._begun(job, entry)
                computed = _computed(job, view, task, scanned, begun.buckets)
            except Exception as error:  # noqa: BLE001  as above
                _forget_merged(job, begun, begun)
                left |= self._left({name: entry}, error)
                continue
            with blamed_on(job):
                standing = append_view(job, computed.parts, computed.changed, entry.progress, begun)
            self._standing[name] = _merged(job, standing, computed.states)
        return left

    def _begun(self, job: Job, entry: Entry) -> Standing:
        """What is known of the last batch, unless Spark has run one since."""
        known = self._standing.pop(job.producer.name, None)
        if known is not None and known.position == entry.start:
            return known
        standing = Standing.of(job)
        _forget_merged(job, known, standing)
        return standing

    def _left(self, entries: dict[str, Entry], error: Exception) -> dict[str, Entry]:
        self._told |= {"left": self._told["left"] + len(entries), "failed": type(error).__name__}
        return entries

    def _took(self, seconds: float) -> None:
        self._long = self._long + 1 if seconds > LONG_S else 0
        self._turns = min(2**self._long - 1, MOST_TURNS)
        self._told |= {"batches": self._told["batches"] + 1, "at": time.time(), "batch_s": seconds}
        (_, job), *_ = self._jobs.values()
        tell(Path(job.query), self._told)


def _records(entry: Entry) -> int:
    return entry.end.position.total - entry.start.total


def _computed(
    job: Job, view: int, task: Task, scanned: Mapping[tuple[int, str], Scanned], before: Buckets
) -> _Computed:
    """Nothing that it writes is listed anywhere yet."""
    job.reached("1 after")
    plan = job.keyed
    arriving: Places = {}
    job.reached("2 before")
    for read in plan.reads:
        for _, rows in leaving_source(job, read, scanned.get((view, read.topic), []), ways_of(plan, unite=True)):
            deliver(rows, arriving)
    kept = job.kept
    states: dict[str, BucketState] = {}
    pending = PendingChunks(kept.chunks) if kept is not None else None

    def state(level: int, bucket: int) -> BucketState:
        assert kept is not None
        assert pending is not None
        known = held(before, level, bucket, plan.buckets, kept.chunks)
        return states.setdefault(place(level, bucket), BucketState(pending, known, later=True))

    passed = watermark(job, task.ends[view]) if plan.levels else None
    leaves = through(plan, arriving, state, watermark=passed, first=view in task.first)
    parts = [part for bucket, ports in sorted(leaves.items()) for part in _staged(job, bucket, ports)]
    changed: dict[str, Manifests] = {here: each.settle() for here, each in states.items()}
    job.reached("2 after")
    return _Computed(parts, changed, states)


def _merged(job: Job, standing: Standing, states: Mapping[str, BucketState]) -> Standing:
    """Now that nobody waits: state is merged for the next batch, which lists it as it is then."""
    if job.kept is None:
        return standing
    try:
        merged = {here: each.merge() for here, each in states.items()}
    except Exception:  # noqa: BLE001  the batch is done; the next one begins with what is listed, and meets it
        return standing
    return replace(standing, buckets={**standing.buckets, **merged})


def _forget_merged(job: Job, known: Standing | None, standing: Standing | None) -> None:
    """What was merged for a batch that goes another way, where `standing` is what counts."""
    if known is not None and standing is not None and job.kept is not None:
        job.kept.forget([known.buckets], but=standing.listed)


def _staged(job: Job, bucket: int, ports: Mapping[int, Sequence[Any]]) -> list[Part]:
    topics = {ANSWER: (job.topic, bucket), DEAD: (job.dead_topic, 0)}
    parts: list[Part] = []
    for port, tables in sorted(ports.items()):
        if job.dropping and port == ANSWER:
            copied(together(tables))
        else:
            parts += staged(job, *topics[port], together(tables))
    return parts


def tell(query: Path, told: Mapping[str, Any]) -> None:
    """For people: how many such batches the run has made, when the last one ended and how long it took; and how many
    views' were left to Spark, the last one for which error."""
    part = query / f"{TOLD}.part"
    part.write_text(json.dumps(told))
    os.replace(part, query / TOLD)


def clear(query: Path) -> None:
    """Before a run."""
    (query / TOLD).unlink(missing_ok=True)


def told(query: Path) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = json.loads((query / TOLD).read_text())
    except (OSError, ValueError):
        return None
    return found
