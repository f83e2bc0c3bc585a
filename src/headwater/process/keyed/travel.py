"""What Spark moves between tasks: blobs with the bucket they go to, the view they are of and the port they are for.

On one machine many rows go by file instead (`parcels`). Rows of a view's topic are staged where they are made, if there
are many, and only their `Part` travels on; few travel as a blob, so that the sink makes one chunk a partition of what
all buckets have of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from headwater.log.protocol import Part
from headwater.process.job import Job
from headwater.process.keyed.bucket import ANSWER, STAGED, Blob, Rows
from headwater.process.keyed.fixed import typed
from headwater.process.keyed.packing import copied, pack
from headwater.process.keyed.parcels import FOLDER, LARGE, put_away

COLUMNS = "bucket int, view int, port int, data binary"
STAGED_ROWS = 10_000


def leaving(job: Job, rows: Iterable[Rows], place: str) -> Iterator[Blob]:
    """`place` says where they come from: the same in a batch that runs again, another for each task and bucket."""
    last, data = None, b""
    for number, each in enumerate(rows):
        if job.dropping and each.port == ANSWER:
            copied(each.rows)  # as if somebody took them
        elif each.port == ANSWER and each.rows.num_rows >= STAGED_ROWS:
            for part in staged(job, job.topic, each.bucket, each.rows):
                yield Blob(each.bucket, STAGED, pickle.dumps(part))
        else:
            if each.rows is not last:  # what goes to all buckets is packed once
                last, data = each.rows, _packed(job, each, f"{place}-{number:04}")
            yield Blob(each.bucket, each.port, data)


def _packed(job: Job, rows: Rows, place: str) -> bytes:
    by_file = rows.port != ANSWER and job.local and rows.rows.nbytes > LARGE
    return put_away(Path(job.query) / FOLDER, rows.rows, place) if by_file else pack(rows.rows)


def staged(job: Job, topic: str, partition: int, rows: pa.Table) -> Iterator[Part]:
    """Step 2: durable, and listed nowhere yet."""
    log = job.log()
    for records in typed(rows, log.topic(topic).stored).combine_chunks().to_batches():
        yield log.stage(topic, partition, records, producer=job.producer)


def batch_of(view: int, blobs: Sequence[Blob], labels: Sequence[int]) -> pa.RecordBatch:
    """`labels` are the numbers that stand for buckets."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([labels[blob.bucket] for blob in blobs], pa.int32()),
            pa.array([view] * len(blobs), pa.int32()),
            pa.array([blob.port for blob in blobs], pa.int32()),
            pa.array([blob.data for blob in blobs], pa.binary()),
        ],
        names=["bucket", "view", "port", "data"],
    )
