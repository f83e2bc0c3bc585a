"""What a run tells of itself while it goes on: written by its thread, read by whoever asks how it stands."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.capture.appender import Appender
from headwater.capture.position import SourcePosition


@dataclass
class Standing:
    phase: str = "starting"
    appender: Appender | None = None
    rows_before: int = 0
    """Appended by runs before this one, of the same process."""
    read: int = 0
    about: int = 0
    heard: int = 0
    """Up to here all that the server has told is appended."""

    @property
    def rows(self) -> int:
        return self.rows_before + (self.appender.rows if self.appender is not None else 0)

    @property
    def position(self) -> SourcePosition:
        return self.appender.position if self.appender is not None else SourcePosition()

    def tell(self, read: int, about: int) -> None:
        """Of a snapshot: rows read so far, and about how many there are."""
        self.read, self.about = read, about

    def taken_over(self, appender: Appender) -> Appender:
        """A new run has begun, which appends by this."""
        self.rows_before, self.appender = self.rows, appender
        return appender
