"""A line of a history, and the operations that lines make.

A process does one thing at a time: it asks (`invoke`), and is told that it was done (`ok`) or that it was not (`fail`),
or neither (`info`: killed, or a failed disk): then it may have happened or not. A process that starts anew has another
name. Values are used once: two records with one value are one record that is there twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

Op = Literal["append", "poll", "begin"]
Type = Literal["invoke", "ok", "fail", "info"]
Partition = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    value: str
    offset: int | None = None
    """Known when an append was acknowledged, and in what was polled."""

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True)
class Range:
    """What a poll has asked for: offsets start <= o < end. One a partition, also where nothing was new."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True)
class Event:
    process: str
    op: Op
    type: Type
    time: int
    """Of a clock that all processes share and that never goes back, in ns."""
    records: tuple[Record, ...] = ()
    ranges: tuple[Range, ...] = ()
    producer: str | None = None
    epoch: int | None = None
    sequence: int | None = None
    repeated: bool = False
    """The append was answered with the answer of an earlier one."""
    final: bool = False
    """The poll is part of the drain after everybody has stopped: it must find everything."""
    error: str | None = None

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, False, ())})

    @classmethod
    def from_json(cls, line: str | bytes) -> Event:
        told = json.loads(line)
        told["records"] = tuple(Record(**record) for record in told.get("records", ()))
        told["ranges"] = tuple(Range(**given) for given in told.get("ranges", ()))
        return cls(**told)


@dataclass(frozen=True)
class Operation:
    """An event that asked and, if there was one, the event that answered."""

    asked: Event
    told: Event | None

    @property
    def op(self) -> Op:
        return self.asked.op

    @property
    def process(self) -> str:
        return self.asked.process

    @property
    def outcome(self) -> Type:
        return self.told.type if self.told is not None else "info"

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def records(self) -> tuple[Record, ...]:
        """With their offsets, if it was answered; as it was asked, if not."""
        return self.told.records if self.told is not None and self.ok else self.asked.records

    def __str__(self) -> str:
        numbered = f" {self.asked.producer}/{self.asked.sequence}" if self.asked.producer else ""
        return f"{self.op}{numbered} of {self.process}"


class History:
    """All operations, in the order in which they were asked."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.operations = tuple(sorted(_paired(events), key=lambda operation: operation.asked.time))

    @classmethod
    def read(cls, *files: Path) -> History:
        """From files with a line an event; a line that a killed process did not end is not one."""
        return cls(
            Event.from_json(line)
            for file in files
            for line in file.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        )

    @cached_property
    def appends(self) -> tuple[Operation, ...]:
        return tuple(operation for operation in self.operations if operation.op == "append")

    @cached_property
    def acknowledged(self) -> tuple[Operation, ...]:
        return tuple(append for append in self.appends if append.ok)

    @cached_property
    def polls(self) -> tuple[Operation, ...]:
        return tuple(operation for operation in self.operations if operation.op == "poll" and operation.ok)

    @cached_property
    def polled(self) -> tuple[Record, ...]:
        return tuple(record for poll in self.polls for record in poll.records)

    @cached_property
    def placed(self) -> tuple[Record, ...]:
        """Every record whose offset somebody was told, by an acknowledgement or a poll."""
        return tuple(record for append in self.acknowledged for record in append.records) + self.polled

    @cached_property
    def attempts(self) -> dict[str, list[Operation]]:
        """Of each value, the appends that tried to add it: more than one if it was repeated."""
        found: dict[str, list[Operation]] = {}
        for append in self.appends:
            for record in append.asked.records:
                found.setdefault(record.value, []).append(append)
        return found


def _paired(events: Iterable[Event]) -> Iterator[Operation]:
    under_way: dict[str, Event] = {}
    for event in sorted(events, key=lambda event: event.time):
        if event.type == "invoke":
            if event.process in under_way:
                raise ValueError(f"process {event.process} asks at {event.time} while it waits for an answer")
            under_way[event.process] = event
        else:
            asked = under_way.pop(event.process, None)
            if asked is None or asked.op != event.op:
                raise ValueError(f"process {event.process} is told {event.op} at {event.time}, and did not ask")
            yield Operation(asked, event)
    for asked in under_way.values():
        yield Operation(asked, None)
