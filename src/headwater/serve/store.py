"""The seam of every store: rows and the position they stand for, changed together or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headwater.errors import StoreMoved
from headwater.log.position import AppendNumber, Position


@dataclass(frozen=True)
class Mark:
    """How far a store is: the last append it holds, its position in the view's topic, and the inputs that covers."""

    number: AppendNumber
    position: Position
    covers: Position

    # As text it rests where a store has no columns for it: {"number": 7, "position": "v:0=3", "covers": "clicks:0=9"}.

    def __str__(self) -> str:
        return json.dumps({"number": self.number, "position": str(self.position), "covers": str(self.covers)})

    @classmethod
    def parse(cls, text: str | bytes) -> Mark:
        told = json.loads(text)
        return cls(AppendNumber(told["number"]), Position.parse(told["position"]), Position.parse(told["covers"]))


def expect(found: Mark, after: Mark | None, *, store: str) -> None:
    """For a store, inside of its transaction: is the mark that it finds the one that the changes follow?"""
    if after is not None and after.number != found.number:
        raise StoreMoved(store=store, expected=after.number, found=found.number)


NOTHING = Mark(AppendNumber(0), Position(), Position())


@dataclass(frozen=True)
class Served:
    """What of a view goes into a store: the rows of one of its versions."""

    view: str
    version: str
    """Another one has other rows, maybe other columns: a store of a version that is not this one starts empty."""
    schema: pa.Schema
    key: tuple[str, ...]
    """None: the rows are a bag, each there as often as it is."""
    folder: Path
    """Where stores keep their files, if they are not told another place."""


class Target(Protocol):
    """What takes a view's changes. One thread at a time uses it; another process may use its like on the same place.

    `StoreFailed` from any method may pass: the caller opens it again and goes on from its mark. Whatever is raised, and
    wherever the process ends, rows and mark are those from before the call or those from after it.
    """

    def mark(self) -> Mark: ...

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        """Apply weighted rows and the new mark in one transaction (step 7). `changes` may be empty: the mark counts.

        `after` is the mark since which the changes are; if the place has another one by now, because somebody else
        applies too or it was put back to an earlier state, nothing is changed and `StoreMoved` is raised.
        """

    def clear(self) -> None:
        """Back to no rows and no mark, at once: the history since the mark is gone, or the version is another one."""

    def close(self) -> None: ...


class Store(Target, Protocol):
    """A target that answers too. Readers may be other threads and processes than the one that applies."""

    def read(self, *, limit: int | None = None) -> tuple[pa.Table, Mark]:
        """All rows and the mark they stand for, from one and the same state."""

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]: ...

    def version(self) -> int:
        """Changes when another connection or process applied something; cheap to ask often."""
