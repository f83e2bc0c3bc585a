"""The end of every batch, whatever the lane: steps 3 to 5 of the protocol in docs/guarantees.md.

3  All that tasks staged is appended at once, with the progress: sequence = Spark's batch number.
4  The log answers a repeated batch with the first one's answer, and refuses one for other inputs.
5  The log refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from headwater.log.position import Position
from headwater.log.protocol import Part, Snapshot
from headwater.process.job import Job
from headwater.process.side import side_parts


@dataclass
class Staged(WriterCommitMessage):
    parts: list[Part]


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [part for message in messages if isinstance(message, Staged) for part in message.parts]


def append_batch(job: Job, parts: Iterable[Part], batch: int) -> None:
    """Nothing, if the pipeline has no part in this batch of a query that it shares."""
    progress = job.planned.progress(batch)
    if progress is None:
        return
    job.reached("3 before")
    log = job.log()
    log.append([*parts, *side_parts(job, progress)], producer=job.producer, sequence=batch, progress=progress)
    job.reached("3 after")
    # Until Spark has marked this batch done (step 6) it may run again: upkeep leaves its inputs.
    pin_inputs(job, job.planned.before(batch))


def pin_inputs(job: Job, before: Snapshot) -> None:
    """Upkeep leaves what a batch reads that begins here: its inputs, and its tables as they were."""
    log = job.log()
    tables: dict[str, Any] = {table: log.position_at(table, before.number) for table in job.tables}
    position = Position.of({**before.position.as_dict(), **tables})
    log.pin(job.producer.name, position, topics=[*job.inputs, *job.tables])
