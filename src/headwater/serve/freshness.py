"""How old the answer of a view is: since when something that it does not reflect yet waits in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.clock import Clock, system_clock
from headwater.errors import Compacted, Missed
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.records import APPENDED_AT


@dataclass(frozen=True)
class Freshness:
    """`behind_s` is 0 when all is reflected that stands in the topics from which the view is made, and otherwise how
    long the oldest record that is not has been waiting, by the clock of whoever asks."""

    behind_s: float
    as_of: datetime
    """Everything that was appended before this moment is reflected."""
    waiting: int
    """How many records are not."""


def freshness(log: Log, topics: Iterable[str], covers: Position, *, clock: Clock = system_clock) -> Freshness:
    now = datetime.fromtimestamp(clock() / 1_000_000, UTC)
    end = log.snapshot(list(topics)).position
    oldest, waiting = now, 0
    for topic, ends in end.as_dict().items():
        for partition, last in ends.items():
            first = covers.offset(topic, partition)
            if last > first:
                waiting += last - first
                oldest = min(oldest, _appended_at(log, topic, partition, first, last) or now)
    return Freshness((now - oldest).total_seconds(), oldest, waiting)


def _appended_at(log: Log, topic: str, partition: int, first: int, last: int) -> datetime | None:
    """When the first record there was appended that is still listed alone."""
    extent = log.extents(topic)[partition]
    beginning = max(first, extent.start, extent.horizon if first else 0)
    try:
        for batch in log.scan(topic, partition, beginning, last, columns=[], metadata=True):
            found: datetime = batch.column(APPENDED_AT)[0].as_py()
            return found
    except (Compacted, Missed):  # moved on meanwhile
        pass
    return None
