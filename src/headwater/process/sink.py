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

from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Part
from headwater.process.checkpoint import Checkpoint
from headwater.process.job import Job
from headwater.process.side import side_parts


@dataclass
class Staged(WriterCommitMessage):
    parts: list[Part]


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [part for message in messages if isinstance(message, Staged) for part in message.parts]


def append_batch(job: Job, parts: Iterable[Part], batch: int) -> None:
    checkpoint = Checkpoint(job.checkpoint, job.begin)
    progress = checkpoint.progress(batch)
    job.reached("3 before", batch)
    log = job.log()
    log.append([*parts, *side_parts(job, progress)], producer=job.producer, sequence=batch, progress=progress)
    job.reached("3 after", batch)
    # Until Spark has marked this batch done (step 6) it may run again: upkeep leaves its inputs.
    pin_inputs(job, progress.start, checkpoint.end(batch - 1).number)


def pin_inputs(job: Job, start: Position, number: AppendNumber) -> None:
    """Upkeep leaves what a batch reads that begins here: its inputs, and its tables as they were."""
    log = job.log()
    tables: dict[str, Any] = {table: log.position_at(table, number) for table in job.tables}
    position = Position.of({**start.as_dict(), **tables})
    log.pin(job.producer.name, position, topics=[*job.inputs, *job.tables])
