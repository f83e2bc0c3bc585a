"""What became of the lines of a feed, over all its runs: kept in the log, in the appends that they tell of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Counts:
    lines: int = 0
    """Appended."""
    bad: int = 0
    """That could not be read."""
    dropped: int = 0
    """By us, because we were slow, as the user chose; or by a bound of the topic."""
    lost: int = 0
    """Datagrams that the kernel dropped before we saw them; times that a file was cut before it was read to its end."""
    last_bad: str = ""

    @classmethod
    def from_state(cls, found: Any) -> Counts:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (found or {}).items() if name in known})

    def to_state(self) -> dict[str, Any]:
        return asdict(self)
