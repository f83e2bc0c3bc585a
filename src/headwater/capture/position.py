"""How far a source has been captured, as a position of the log, so that it rests in the append it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from headwater.log import Position

NAME = "_headwater.capture."


@total_ordering
@dataclass(frozen=True)
class SourcePosition:
    """Everything up to here is captured: the transaction that committed at `commit`, whose record ends at `end`, with
    `changes` of them. A heartbeat moves `end` alone."""

    commit: int = 0
    end: int = 0
    changes: int = 0

    def __lt__(self, other: SourcePosition) -> bool:
        return (self.end, self.commit, self.changes) < (other.end, other.commit, other.changes)

    def in_log(self, capture: str) -> Position:
        return Position.of({NAME + capture: {0: self.commit, 1: self.end, 2: self.changes}})

    @classmethod
    def from_log(cls, capture: str, position: Position) -> SourcePosition:
        return cls(*(position.offset(NAME + capture, part) for part in range(3)))


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    upper, _, lower = text.partition("/")
    return int(upper, 16) << 32 | int(lower, 16)


def binlog_text(name: str, place: int) -> str:
    """A place in a binlog, as MySQL writes it: `binlog.000003:1337`."""
    return f"{name}.{place >> 32:06d}:{place & 0xFFFFFFFF}"


def position_text(source: Mapping[str, Any] | None, place: int) -> str:
    """By what a capture knows of its source."""
    name = (source or {}).get("binlog")
    return binlog_text(name, place) if name is not None else lsn_text(place)
