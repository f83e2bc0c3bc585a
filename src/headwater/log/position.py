"""Positions: how far, in every partition of every topic. Ends are exclusive, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

from headwater.errors import BadPosition

Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
Sequence = NewType("Sequence", int)
AppendNumber = NewType("AppendNumber", int)
"""Counts the appends of the whole log, from 1; 0 is before the first."""

Ends = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Position:
    """A vector `{topic: {partition: offset}}`. What it does not name stands at 0; offset 0 is never named.

    So two positions that mean the same are equal and are written the same way.
    """

    ends: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    @classmethod
    def of(cls, ends: Ends) -> Position:
        parts = ((topic, tuple(sorted((p, o) for p, o in by.items() if o > 0))) for topic, by in sorted(ends.items()))
        return cls(tuple((topic, by) for topic, by in parts if by))

    def as_dict(self) -> dict[str, dict[int, int]]:
        return {topic: dict(by) for topic, by in self.ends}

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic, _ in self.ends)

    def offset(self, topic: str, partition: int) -> int:
        return dict(dict(self.ends).get(topic, ())).get(partition, 0)

    def only(self, topics: Iterable[str]) -> Position:
        wanted = set(topics)
        return Position(tuple(part for part in self.ends if part[0] in wanted))

    @property
    def total(self) -> int:
        """All offsets together: how many records it has behind it, also those that upkeep removed."""
        return sum(offset for _, by in self.ends for _, offset in by)

    def covers(self, other: Position) -> bool:
        mine = self.as_dict()
        return all(mine.get(topic, {}).get(p, 0) >= offset for topic, by in other.ends for p, offset in by)

    # As text it is the token a user carries around, and rests in the catalog: `clicks:0=12,1=7;users:0=3`.

    def __str__(self) -> str:
        return ";".join(f"{topic}:" + ",".join(f"{p}={o}" for p, o in by) for topic, by in self.ends)

    @classmethod
    @lru_cache(maxsize=64)
    def parse(cls, text: str) -> Position:
        ends: dict[str, dict[int, int]] = {}
        for part in filter(None, text.split(";")):
            topic, colon, offsets = part.partition(":")
            if not colon or not topic or topic in ends:
                raise BadPosition(text=text, why=f"{part!r} is not 'topic:partition=offset,...' or stands twice")
            try:
                ends[topic] = {int(p): int(o) for p, o in (pair.split("=") for pair in offsets.split(","))}
            except ValueError:
                raise BadPosition(text=text, why=f"{offsets!r} is not 'partition=offset,...'") from None
            if any(p < 0 or o < 0 for p, o in ends[topic].items()):
                raise BadPosition(text=text, why="numbers below zero")
        return cls.of(ends)


START = Position()
"""Before everything."""
