"""The seam of every store: rows and the position they stand for, changed together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headwater.log.position import AppendNumber, Position


@dataclass(frozen=True)
class Mark:
    """How far a store is: the last append it holds, its position in the view's topic, and the inputs that covers."""

    number: AppendNumber
    position: Position
    covers: Position


NOTHING = Mark(AppendNumber(0), Position(), Position())


class Store(Protocol):
    def mark(self) -> Mark: ...

    def apply(self, changes: pa.Table, mark: Mark) -> None:
        """Apply weighted rows and the new mark in one transaction (step 7). `changes` may be empty: the mark counts."""

    def read(self, *, limit: int | None = None) -> tuple[pa.Table, Mark]:
        """All rows and the mark they stand for, from one and the same state."""

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]: ...

    def version(self) -> int:
        """Changes when another connection or process applied something; cheap to ask often."""

    def close(self) -> None: ...
