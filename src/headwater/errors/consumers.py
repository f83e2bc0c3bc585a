"""What groups and queues refuse."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors.log import LogError
from headwater.errors.root import listed


class BadOffset(LogError):
    """An offset that a group cannot stand at."""

    def __init__(self, *, group: str, topic: str, partition: int, asked: int, low: int, high: int) -> None:
        super().__init__(
            f"group {group!r} cannot stand at offset {asked} of topic {topic!r}, partition {partition}",
            do=f"Give an offset from {low} to {high}; only a reset goes back",
        )
        self.group, self.topic, self.partition = group, topic, partition
        self.asked, self.low, self.high = asked, low, high


class GroupNotFound(LogError):
    def __init__(self, *, group: str, topic: str | None = None, known: Iterable[str] = ()) -> None:
        where = f" on topic {topic!r}" if topic else ""
        super().__init__(f"there is no group {group!r}{where}", do=f"Groups there: {listed(known)}")
        self.group, self.topic = group, topic


class NotAMember(LogError):
    """The member left, or was silent for longer than its session; others have its partitions now."""

    def __init__(self, *, group: str, topic: str, member: str) -> None:
        super().__init__(
            f"{member!r} is not a member of group {group!r} on topic {topic!r}; nothing was committed",
            do="Join again and go on from the committed offsets",
        )
        self.group, self.topic, self.member = group, topic, member


class Rebalanced(LogError):
    """Partitions were given out anew, or the group was reset. What was read and not committed is read again."""

    def __init__(self, *, group: str, topic: str, generation: int, current: int) -> None:
        super().__init__(
            f"group {group!r} on topic {topic!r} is at generation {current}, not {generation}; nothing was committed",
            do="Poll again: it goes on from the committed offsets of the partitions given now",
        )
        self.group, self.topic, self.generation, self.current = group, topic, generation, current


class QueueNotFound(LogError):
    def __init__(self, *, queue: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no queue {queue!r}", do=f"Queues here: {listed(known)}")
        self.queue = queue


class QueueMismatch(LogError):
    """The queue exists with other settings than those declared now."""

    def __init__(self, *, queue: str, difference: str) -> None:
        super().__init__(
            f"queue {queue!r} exists with another {difference}", do="Declare it as it is, or use a new name"
        )
        self.queue, self.difference = queue, difference


class LeaseLost(LogError):
    """The record was settled already, or its lease ran out and somebody else may have it."""

    def __init__(self, *, queue: str, receipt: str) -> None:
        super().__init__(
            f"queue {queue!r} has no lease {receipt!r}: it ran out or was settled; nothing was changed",
            do="Leave the record to whoever has it now; if work takes long, extend the lease in time",
        )
        self.queue, self.receipt = queue, receipt
