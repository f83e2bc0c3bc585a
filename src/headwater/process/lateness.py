"""Which records of a batch are late, as a function of the log: so a retry, and what is told about them, agree.

Keyed lane: a record is late against the greatest event time at smaller offsets of its partition. However batches are
cut, the same records are late, so a rebuilt view agrees with the live one.
Frames lane: Spark drops what is older than its own watermark, the greatest event time of all earlier batches less the
lateness, and tells nobody. There a record is late by the same measure, taken from the log where the batch begins; so
Spark never sees a record that it would drop.

Late records are not lost: they are appended to `<name>.late`, in the same append as the batch's output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.process.job import Job
from headwater.process.source import Range

Micros = npt.NDArray[np.int64]
MILLI = 1000
"""Spark's watermark counts milliseconds."""


def watermark(job: Job, end: Position) -> int | None:
    """How far event time has come at the end of a batch."""
    return passed(job.log(), [topic for topic, _ in job.lateness], end)


def passed(log: Log, topics: Iterable[str], end: Position) -> int | None:
    """Event time that the topics have passed at `end` in all partitions that have records; None before the first."""
    times = [
        time
        for topic in topics
        for partition in range(log.topic(topic).partitions)
        if (time := log.max_time(topic, partition, end.offset(topic, partition))) is not None
    ]
    return min(times, default=None)


def threshold(log: Log, spec: TopicSpec, start: Position, lateness: int) -> int | None:
    """In the frames lane: the last event time, in µs, that is late in a batch that begins at `start`."""
    times = [log.max_time(spec.name, partition, start.offset(spec.name, partition)) for partition in _all(spec)]
    known = [time for time in times if time is not None]
    return (max(known) // MILLI - lateness // MILLI) * MILLI if known else None


def beyond(times: Micros, bound: int) -> Micros:
    """In the frames lane: how late, in µs; 0 for those that are not. At the bound itself a record is late already."""
    return np.where(times == _NEVER, 0, np.maximum(bound + 1 - times, 0))


def admitted(job: Job, spec: TopicSpec, part: Range, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In the keyed lane: the records of a range that are not late."""
    lateness = dict(job.lateness).get(spec.name)
    if lateness is None:
        yield from batches
        return
    for batch, late_by in running(job.log(), spec, part, batches, lateness):
        yield batch if not late_by.any() else batch.filter(pa.array(late_by == 0))


def running(
    log: Log, spec: TopicSpec, part: Range, batches: Iterable[pa.RecordBatch], lateness: int
) -> Iterator[tuple[pa.RecordBatch, Micros]]:
    """Each batch with how late its records are beyond the lateness, in µs; 0 for those that are not."""
    assert spec.time is not None
    before = log.max_time(spec.name, part.partition, part.start)
    for batch in batches:
        times = event_times(batch, spec.time)
        greatest = np.maximum.accumulate(np.concatenate(([_NEVER if before is None else before], times)))
        bound = np.maximum(greatest[:-1], _NEVER + lateness) - lateness
        yield batch, np.where(times == _NEVER, 0, np.maximum(bound - times, 0))
        before = int(greatest[-1])


_NEVER = np.iinfo(np.int64).min // 2


def event_times(batch: pa.RecordBatch, time: str) -> Micros:
    """In µs; a record without one (a tombstone) is never late and moves nothing."""
    times: Micros = batch.column(time).cast(pa.int64()).fill_null(_NEVER).to_numpy(zero_copy_only=False)
    return times


def _all(spec: TopicSpec) -> range:
    return range(spec.partitions)
