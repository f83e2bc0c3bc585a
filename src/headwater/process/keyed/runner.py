"""One level of the plans of some views, on the rows of some buckets, as Spark calls it: from Arrow to Arrow.

Spark has no part in the state: that is read from where it rests, and what it will be is told on, to the sink, which
lists it with the append of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from headwater.process.blame import blamed_on
from headwater.process.job import Job, load_jobs
from headwater.process.keyed.bucket import STATE, Blob, run_batch
from headwater.process.keyed.keeping import Buckets, BucketState, place
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.travel import batch_of, leaving

_Arrived = dict[tuple[int, int], dict[int, list[bytes]]]
"""By view and the number that stands for the bucket, then by port."""


class LevelRunner:
    """For `mapInArrow`. Rows go on to the next level's buckets or, from the last, to the sink."""

    def __init__(self, jobs: str, level: int) -> None:
        self._jobs = jobs
        self._level = level

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        jobs = load_jobs(self._jobs)
        before: dict[int, Buckets | None] = {}
        for (view, label), ports in sorted(_arrived(batches).items()):
            job = jobs[view]
            with blamed_on(job):
                if view not in before:
                    before[view] = _before(job)
                known = before[view]
                if known is not None:
                    yield self._step(job, view, label, known, ports)

    def _step(self, job: Job, view: int, label: int, known: Buckets, ports: dict[int, list[bytes]]) -> pa.RecordBatch:
        plan = job.keyed
        labels = bucket_labels(plan.buckets)
        bucket = labels.index(label)
        here = place(self._level, bucket)
        assert job.kept is not None
        state = BucketState(job.kept.chunks, known.get(here, {}))
        blobs = list(leaving(job, run_batch(plan, self._level, bucket, state, ports), f"bucket {bucket:04}"))
        blobs.append(Blob(bucket, STATE, json.dumps({here: state.settle()}).encode()))
        return batch_of(view, blobs, range(plan.buckets) if self._level == plan.levels - 1 else labels)


def _arrived(batches: Iterator[pa.RecordBatch]) -> _Arrived:
    arrived: _Arrived = {}
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("view", "bucket", "port", "data"))
        for view, label, port, blob in zip(*columns, strict=True):
            arrived.setdefault((view, label), {}).setdefault(port, []).append(blob)
    return arrived


def _before(job: Job) -> Buckets | None:
    """The state that the batch begins with; None if its append stands already, and there is nothing left to do."""
    covered = job.log().covered(job.producer.name)
    batch = job.planned.last_planned()
    if covered is not None and batch is not None and covered.sequence >= batch:
        return None
    assert job.kept is not None
    return job.kept.buckets(covered)
