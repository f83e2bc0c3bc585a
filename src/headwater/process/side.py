"""What did not go through a pipeline, kept beside its output, each record with its address in the log.

    <name>.late   came too late in event time, and by how much
    <name>.dead   could not be processed, or was skipped by hand, and why

Both are worked out from the log again when the batch is appended, in the same append as its output: exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.protocol import Log, Part, Progress
from headwater.log.spec import TopicSpec
from headwater.process.job import Job
from headwater.process.keyed.deadletters import SCHEMA as DEAD
from headwater.process.lateness import beyond, event_times, running, threshold
from headwater.process.source import Range
from headwater.records import APPENDED_AT, OFFSET, PARTITION, TIMESTAMP

_ADDRESS = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
LATE = pa.schema([*_ADDRESS, ("time", TIMESTAMP), ("late_us", pa.int64()), ("record", pa.string())])


def late_topic(job: Job) -> TopicSpec:
    return TopicSpec(job.late_topic, LATE, time="time", partitions=1)


def dead_topic(job: Job) -> TopicSpec:
    return TopicSpec(job.dead_topic, DEAD, partitions=1)


def side_parts(job: Job, progress: Progress) -> list[Part]:
    """What a batch of this progress leaves beside its output."""
    log = job.log()
    if any(skip == progress for skip in job.skips):
        rows = [row for part in _ranges(job, progress) for row in _skipped(log, part)]
        return _staged(job, job.dead_topic, DEAD, rows)
    rows = [row for part in _ranges(job, progress) for row in _late(job, log, part, progress)]
    return _staged(job, job.late_topic, LATE, rows)


def _staged(job: Job, topic: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> list[Part]:
    if not rows:
        return []
    records = pa.RecordBatch.from_pylist(rows, schema=schema)
    return [job.log().stage(topic, 0, records, producer=job.producer)]


def _ranges(job: Job, progress: Progress) -> Iterator[Range]:
    for topic in job.inputs:
        for partition in range(job.log().topic(topic).partitions):
            start, end = progress.start.offset(topic, partition), progress.end.offset(topic, partition)
            if end > start:
                yield Range(topic, partition, start, end)


def _late(job: Job, log: Log, part: Range, progress: Progress) -> Iterator[dict[str, Any]]:
    lateness = dict(job.lateness).get(part.topic)
    if lateness is None:
        return
    late = _late_offsets(job, log, part, progress, lateness)
    if not late:
        return
    spec = log.topic(part.topic)
    assert spec.time is not None
    for batch in log.scan(part.topic, part.partition, min(late), max(late) + 1, metadata=True):
        for row in batch.filter(pc.is_in(batch.column(OFFSET), pa.array(list(late), pa.int64()))).to_pylist():
            yield {**_address(part, row), "time": row[spec.time], "late_us": late[row[OFFSET]], "record": as_json(row)}


def _late_offsets(job: Job, log: Log, part: Range, progress: Progress, lateness: int) -> dict[int, int]:
    """How late each late record of the range is, by offset."""
    spec = log.topic(part.topic)
    assert spec.time is not None
    scanned = log.scan(part.topic, part.partition, part.start, part.end, columns=[spec.time], metadata=True)
    if job.plan is not None:
        measured = running(log, spec, part, scanned, lateness)
    else:
        bound = threshold(log, spec, progress.start, lateness)
        if bound is None:
            return {}
        measured = ((batch, beyond(event_times(batch, spec.time), bound)) for batch in scanned)
    late = {}
    for batch, late_by in measured:
        for place in np.flatnonzero(late_by).tolist():
            late[batch.column(OFFSET)[place].as_py()] = int(late_by[place])
    return late


def _skipped(log: Log, part: Range) -> Iterator[dict[str, Any]]:
    for batch in log.scan(part.topic, part.partition, part.start, part.end, metadata=True):
        for row in batch.to_pylist():
            yield {**_address(part, row), "error": "skipped by hand", "record": as_json(row)}


def _address(part: Range, row: dict[str, Any]) -> dict[str, Any]:
    return {"topic": part.topic, "partition": part.partition, "offset": row[OFFSET]}


def as_json(row: dict[str, Any]) -> str:
    """A record as text: times in ISO 8601, bytes in hex; its address stands beside it."""
    own = {name: value for name, value in row.items() if name not in (PARTITION, OFFSET, APPENDED_AT)}
    return json.dumps(own, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
