"""The append of a view's batch, with its state: what that will be is listed before it (step 2), and counts with it."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.log.position import AppendNumber
from headwater.log.protocol import Part, Progress, Snapshot
from headwater.process.job import Job
from headwater.process.keyed.keeping import Buckets, with_changed
from headwater.process.sink import append


def append_view(job: Job, parts: Iterable[Part], changed: Buckets, progress: Progress) -> None:
    """`changed` are the buckets whose state is another now. Once it stands, the batch does not read its inputs again,
    even if Spark runs it again."""
    covered = job.log().covered(job.producer.name)
    sequence = covered.sequence + 1 if covered is not None else 0
    again = Snapshot(AppendNumber(0), progress.end)
    if job.kept is None:
        append(job, parts, sequence, progress, again=again)
        return
    before = job.kept.buckets(covered)
    after = with_changed(before, changed, job.keyed.buckets, job.kept.chunks)
    job.kept.write(sequence, job.producer.epoch, job.keyed, after)
    append(job, parts, sequence, progress, again=again)
    job.kept.settle(sequence, job.producer.epoch, before, after)
