"""What a run of a binlog tells of itself, beyond what all do."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.capture import standing


@dataclass
class Standing(standing.Standing):
    lag_bytes: int | None = None
