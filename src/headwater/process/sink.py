"""The end of every batch, whatever the lane: steps 3 to 5 of the protocol in docs/guarantees.md.

3  All that tasks staged is appended at once, with the progress, and with what the next batch will read pinned.
4  The log answers a repeated append with the first one's answer, and refuses one for other inputs.
5  The log refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from headwater.log.position import Position
from headwater.log.protocol import Part, Pin, Progress, Snapshot
from headwater.process.job import Job
from headwater.process.side import side_parts


@dataclass
class Staged(WriterCommitMessage):
    parts: list[Part]


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [part for message in messages if isinstance(message, Staged) for part in message.parts]


def append(job: Job, parts: Iterable[Part], sequence: int, progress: Progress, *, again: Snapshot) -> None:
    """`again` is where the next run may begin to read: upkeep leaves what is after it, from this very append on."""
    job.reached("3 before", sequence)
    job.log().append(
        [*parts, *(side_parts(job, progress) if job.lateness or job.skips else ())],
        producer=job.producer,
        sequence=sequence,
        progress=progress,
        pin=_inputs(job, again),
    )
    job.reached("3 after", sequence)


def pin_inputs(job: Job, before: Snapshot) -> None:
    """Upkeep leaves what a batch reads that begins here."""
    pin = _inputs(job, before)
    job.log().pin(pin.name, pin.position, topics=pin.topics)


def _inputs(job: Job, before: Snapshot) -> Pin:
    """What it reads: its inputs, and its tables as they were."""
    tables: dict[str, Any] = {table: job.log().position_at(table, before.number) for table in job.tables}
    position = Position.of({**before.position.as_dict(), **tables})
    return Pin(job.producer.name, position, (*job.inputs, *job.tables))
