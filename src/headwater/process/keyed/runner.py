"""One level of the plans of some views, on the rows of some buckets, as Spark calls it: from Arrow to Arrow.

Spark has no part in the state: that is read from where it rests, and what it will be is told on, to the sink, which
lists it with the append of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.process.blame import blamed_on
from headwater.process.job import Job, load_jobs
from headwater.process.keyed.bucket import BEGIN, STATE, WATERMARK, Arrived, Blob, is_for, run_batch
from headwater.process.keyed.keeping import Buckets, BucketState, held, place, to_json
from headwater.process.keyed.packing import bucket_labels, unpack
from headwater.process.keyed.pending import PendingChunks
from headwater.process.keyed.travel import batch_of, leaving
from headwater.process.plan import Plan

_Ports = Mapping[int, list[bytes]]
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

    def _step(self, job: Job, view: int, label: int, known: Buckets, ports: _Ports) -> pa.RecordBatch:
        plan, level = job.keyed, self._level
        labels = bucket_labels(plan.buckets)
        bucket = labels.index(label)
        assert job.kept is not None
        chunks = job.kept.chunks
        state = BucketState(PendingChunks(chunks), held(known, level, bucket, plan.buckets, chunks))
        blobs = list(passed_on(plan, level, bucket, ports))
        blobs += leaving(job, run_batch(plan, level, bucket, state, arrived(plan, level, ports)), f"bucket {bucket:04}")
        told = to_json({place(level, bucket): state.settle()})
        blobs.append(Blob(bucket, STATE, json.dumps(told).encode()))
        return batch_of(view, blobs, range(plan.buckets) if level == plan.levels - 1 else labels)


def arrived(plan: Plan, level: int, ports: _Ports) -> Arrived:
    """What is for this level. Tasks deliver in any order; operators do not mind, but sorting makes what they write the
    same bytes every time."""
    told = unpack(ports[WATERMARK]) if WATERMARK in ports else None
    return Arrived(
        {port: unpack(sorted(blobs)) for port, blobs in ports.items() if is_for(plan, level, port)},
        watermark=pc.min(told["watermark"]).as_py() if told is not None else None,
        first=BEGIN in ports,
    )


def passed_on(plan: Plan, level: int, bucket: int, ports: _Ports) -> Iterator[Blob]:
    """What is for later levels or the sink, and what all levels are told."""
    for port, blobs in sorted(ports.items()):
        if port in (WATERMARK, BEGIN):
            told = blobs if level < plan.levels - 1 else []
        else:
            told = [] if is_for(plan, level, port) else sorted(blobs)
        yield from (Blob(bucket, port, blob) for blob in told)


def _arrived(batches: Iterator[pa.RecordBatch]) -> _Arrived:
    arrived: _Arrived = {}
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("view", "bucket", "port", "data"))
        for view, label, port, blob in zip(*columns, strict=True):
            arrived.setdefault((view, label), {}).setdefault(port, []).append(blob)
    return arrived


def _before(job: Job) -> Buckets | None:
    """The state that the batch begins with; None if its append stands already, and there is nothing left to do."""
    batch = job.planned.last_planned()
    progress = job.planned.progress(batch) if batch is not None else None
    if progress is not None and job.has_done(progress):
        return None
    assert job.kept is not None
    return job.kept.buckets(job.log().covered(job.producer.name))
