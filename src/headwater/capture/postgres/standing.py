"""What a run on a slot tells of itself, beyond what all do."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.capture import standing
from headwater.capture.postgres.guard import Kept


@dataclass
class Standing(standing.Standing):
    kept: Kept | None = None
