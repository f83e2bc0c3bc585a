"""What is gone, damaged or out of reach on disk."""

from __future__ import annotations

from headwater.errors.log import LogError


class Missed(LogError):
    """Records that retention or a bound has removed before this reader came to them."""

    def __init__(self, *, topic: str, partition: int, asked: int, first: int) -> None:
        super().__init__(
            f"topic {topic!r}, partition {partition}: offsets {asked} to {first - 1} are gone, {first} is the first",
            do="Go on there if the loss is acceptable, else rebuild from a source that has them",
        )
        self.topic, self.partition, self.asked, self.first = topic, partition, asked, first


class Compacted(LogError):
    """A start inside of what compaction has replaced by net sums."""

    def __init__(self, *, topic: str, partition: int, asked: int, horizon: int) -> None:
        super().__init__(
            f"topic {topic!r}, partition {partition}: what is before {horizon} is compacted, cannot start at {asked}",
            do=f"Begin again at 0 with an empty state, or at {horizon} or later",
        )
        self.topic, self.partition, self.asked, self.horizon = topic, partition, asked, horizon


class Pinned(LogError):
    """Upkeep or deletion that somebody's position does not allow yet."""

    def __init__(self, *, topic: str, by: str, act: str) -> None:
        super().__init__(
            f"{act} of topic {topic!r} would take away what {by!r} has yet to read",
            do=f"Let {by!r} go on, or remove it",
        )
        self.topic, self.by, self.act = topic, by, act


class Corrupt(LogError):
    """Bytes on disk are not the bytes that were written."""

    def __init__(self, *, what: str, file: str) -> None:
        super().__init__(f"{what} in {file} is damaged", do="Restore this file from a backup; nothing was changed")
        self.file = file


class StorageFailed(LogError):
    """The disk said no. The append was not acknowledged; everything acknowledged before stands."""

    def __init__(self, *, act: str, file: str, why: str) -> None:
        super().__init__(
            f"{act} {file} failed: {why}; nothing was appended",
            do="Free space or mend the disk, then open the log again",
        )
        self.act, self.file, self.why = act, file, why


class NewerFormat(LogError):
    def __init__(self, *, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format {found}, this Headwater knows {known}", do="Upgrade Headwater to open this log"
        )
        self.path, self.found, self.known = path, found, known


class UpgradeBlocked(LogError):
    """A log of an older format that somebody, perhaps with an older Headwater, has open."""

    def __init__(self, *, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format {found} and is in use, so it cannot be upgraded to format {known}; nothing was changed",
            do="Stop all processes that use this log, then open it again: that upgrades it",
        )
        self.path, self.found, self.known = path, found, known


class BackupFailed(LogError):
    """Nothing stands under the backup's name; the log is as it was."""

    def __init__(self, *, folder: str, why: str, do: str = "Mend the cause and run it again") -> None:
        super().__init__(f"no backup was made in {folder}: {why}", do=do)
        self.folder, self.why = folder, why


class BadBackup(LogError):
    """A backup that is not whole, or not what was once written. Nothing was restored."""

    def __init__(self, *, folder: str, why: str) -> None:
        super().__init__(f"{folder} cannot be restored: {why}; nothing was written", do="Restore from another backup")
        self.folder, self.why = folder, why


class TargetNotEmpty(LogError):
    def __init__(self, *, folder: str) -> None:
        super().__init__(f"{folder} is there already; nothing was written", do="Name a folder that is not there yet")
        self.folder = folder
