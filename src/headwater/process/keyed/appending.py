"""The append of a view's batch, with its state: what that will be is listed before it (step 2), and counts with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Covered, Part, Progress, Snapshot
from headwater.process.job import Job
from headwater.process.keyed.keeping import Buckets, with_changed
from headwater.process.sink import append


@dataclass(frozen=True)
class Standing:
    """What a batch of a view begins with."""

    sequence: int
    """The one that its append will have."""
    position: Position
    """Where the last append ended."""
    listed: Buckets
    """The state that goes with that."""
    buckets: Buckets
    """The same state, perhaps merged since."""

    @classmethod
    def of(cls, job: Job) -> Standing:
        covered = job.log().covered(job.producer.name)
        listed = job.kept.buckets(covered) if job.kept is not None else {}
        return cls(*_after(covered), listed, listed)


def append_view(
    job: Job, parts: Iterable[Part], changed: Buckets, progress: Progress, begun: Standing | None = None
) -> Standing:
    """`changed` are the buckets whose state is another now. Once it stands, the batch does not read its inputs again,
    even if Spark runs it again. Answers what the next batch begins with."""
    begun = begun or Standing.of(job)
    again = Snapshot(AppendNumber(0), progress.end)
    after: Buckets = {}
    if job.kept is not None:
        after = with_changed(begun.buckets, changed, job.keyed.buckets, job.kept.chunks)
        job.kept.write(begun.sequence, job.producer.epoch, job.keyed, after)
    append(job, parts, begun.sequence, progress, again=again)
    if job.kept is not None:
        job.kept.settle(begun.sequence, job.producer.epoch, [begun.listed, begun.buckets], after)
    return Standing(begun.sequence + 1, progress.end, after, after)


def _after(covered: Covered | None) -> tuple[int, Position]:
    return (covered.sequence + 1, covered.progress.end) if covered is not None else (0, Position())
