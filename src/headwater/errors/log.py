"""What the log refuses."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors.root import HeadwaterError, listed


class LogError(HeadwaterError):
    pass


class BadLogUrl(LogError):
    def __init__(self, *, url: str, why: str) -> None:
        super().__init__(f"cannot open the log {url!r}: {why}", do="Give a folder as 'file:PATH'")
        self.url, self.why = url, why


class BadName(LogError):
    def __init__(self, *, name: str, kind: str = "topic") -> None:
        super().__init__(
            f"{name!r} cannot name a {kind}",
            do="Use a letter or underscore, then letters, digits, '_', '-' or '.', at most 200 characters",
        )
        self.name = name


class TopicNotFound(LogError):
    def __init__(self, *, topic: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no topic {topic!r}", do=f"Topics here: {listed(known)}")
        self.topic = topic


class TopicMismatch(LogError):
    """The topic exists with another shape than the one declared now."""

    def __init__(self, *, topic: str, difference: str) -> None:
        super().__init__(
            f"topic {topic!r} exists with another {difference}",
            do="Declare it as it is, or use a new name: a topic cannot be changed in place yet",
        )
        self.topic, self.difference = topic, difference


class BadPartition(LogError):
    def __init__(self, *, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}", do=f"Use 0 to {partitions - 1}")
        self.topic, self.partition, self.partitions = topic, partition, partitions


class BadPosition(LogError):
    def __init__(self, *, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} is not a position: {why}",
            do="Use the token that an append returned, such as 'clicks:0=12,1=7;users:0=3'",
        )
        self.text, self.why = text, why


class Fenced(LogError):
    """A newer incarnation of this producer exists; this one must stop. Never retry it."""

    def __init__(self, *, producer: str, epoch: int, current: int) -> None:
        super().__init__(
            f"producer {producer!r} at epoch {epoch} was replaced by epoch {current}; nothing was appended",
            do="Stop this process: a newer one has taken over",
        )
        self.producer, self.epoch, self.current = producer, epoch, current


class ProgressBroken(LogError):
    """An append whose input range does not follow, or contradicts, what its producer appended before."""

    def __init__(self, *, producer: str, sequence: int, why: str) -> None:
        super().__init__(
            f"producer {producer!r}, sequence {sequence}: {why}; nothing was appended",
            do="The producer's own record of its progress was lost or restored: rebuild its output from the log",
        )
        self.producer, self.sequence, self.why = producer, sequence, why


class Busy(LogError):
    """Another writer held the catalog for longer than we wait. Retrying is safe."""

    def __init__(self, *, path: str, waited_s: float, holder: int | None = None) -> None:
        who = f"process {holder}" if holder is not None else "another process"
        super().__init__(
            f"{who} has been writing to {path} for {waited_s:.1f} s; nothing was appended",
            do="Try again; if it goes on, see whether that process was stopped (kill -CONT) or hangs",
        )
        self.path, self.waited_s, self.holder = path, waited_s, holder


class SchemaRefused(LogError):
    """A change of a topic's schema that old records could not follow."""

    def __init__(self, *, topic: str, column: str, why: str) -> None:
        super().__init__(
            f"topic {topic!r}, column {column!r}: {why}",
            do="Columns may be added and types widened; for anything else make a new topic",
        )
        self.topic, self.column, self.why = topic, column, why


class VersionConflict(LogError):
    """Somebody else appended to this key meanwhile. Read again, decide again."""

    def __init__(self, *, topic: str, key: str, expected: int, found: int) -> None:
        super().__init__(
            f"topic {topic!r}, key {key} is at version {found}, not {expected}; nothing was appended",
            do="Read the key again and append with its version",
        )
        self.topic, self.key, self.expected, self.found = topic, key, expected, found


class Full(LogError):
    """A bounded topic that blocks had no room in time."""

    def __init__(self, *, topic: str, most_rows: int, waited_s: float) -> None:
        super().__init__(
            f"topic {topic!r} has held its {most_rows} records for {waited_s:g} s; nothing was appended",
            do="Its consumers are slower than its producers: wait, add consumers, or raise most_rows",
        )
        self.topic, self.most_rows, self.waited_s = topic, most_rows, waited_s
