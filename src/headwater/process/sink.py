"""The end of every batch, whatever the lane: steps 3 to 5 of the protocol in docs/guarantees.md.

3  All that tasks staged is appended at once, with the progress.
4  The log answers a repeated append with the first one's answer, and refuses one for other inputs.
5  The log refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from headwater.log.position import Position
from headwater.log.protocol import Part, Progress, Snapshot
from headwater.process.job import Job
from headwater.process.side import side_parts


@dataclass
class Staged(WriterCommitMessage):
    parts: list[Part]


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [part for message in messages if isinstance(message, Staged) for part in message.parts]


def append(job: Job, parts: Iterable[Part], sequence: int, progress: Progress, *, again: Snapshot) -> None:
    """`again` is where the next run may begin to read: upkeep leaves what is after it."""
    job.reached("3 before", sequence)
    log = job.log()
    log.append([*parts, *side_parts(job, progress)], producer=job.producer, sequence=sequence, progress=progress)
    job.reached("3 after", sequence)
    pin_inputs(job, again)


def pin_inputs(job: Job, before: Snapshot) -> None:
    """Upkeep leaves what a batch reads that begins here: its inputs, and its tables as they were."""
    log = job.log()
    tables: dict[str, Any] = {table: log.position_at(table, before.number) for table in job.tables}
    position = Position.of({**before.position.as_dict(), **tables})
    log.pin(job.producer.name, position, topics=[*job.inputs, *job.tables])
