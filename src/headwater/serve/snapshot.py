"""Several views as of one and the same moment of the log: never one of them before a write and another after it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from headwater.errors import CutNotReached
from headwater.log.coverage import Made, MadeBy, all_inputs, covered_by
from headwater.log.cuts import ask, standing
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log
from headwater.serve.feed import Lookup
from headwater.serve.view import View

WAKE_S = 0.05


@dataclass(frozen=True)
class Moment(Mapping[str, pa.Table]):
    """Views at one moment: the rows of each, by its name. `number` is the append at which they stand."""

    number: AppendNumber
    position: Position
    """What all of them reflect of what they are made from."""
    tables: Mapping[str, pa.Table]

    def __getitem__(self, view: str) -> pa.Table:
        return self.tables[view]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)


def snapshot(log: Log, lookup: Lookup, views: Sequence[View], *, timeout_s: float) -> Moment:
    """Ask for a cut, wait until all views have come to it, and read what their topics said there.

    A cut that some view has passed by, or whose rows were compacted before they were read, is asked for anew.
    """
    deadline = time.monotonic() + timeout_s
    behind = tuple(view.name for view in views)
    while (left := deadline - time.monotonic()) > 0:
        made = {view.name: found for view in views if (found := lookup.current(view.name)) is not None}
        if len(made) < len(views):
            behind = tuple(view.name for view in views if view.name not in made)
            break
        cut = ask(log, _concerned(lookup.made_by, made.values()), timeout_s=left)
        behind = _awaited(log, lookup, tuple(made.values()), cut.number, deadline)
        if not behind:
            together = _read(log, lookup.made_by, views, made, cut.number)
            if together is not None:
                return together
    raise CutNotReached(views=[view.name for view in views], behind=behind, timeout_s=timeout_s)


def _concerned(made_by: MadeBy, views: Iterable[Made]) -> Iterator[str]:
    """The producers of the views, and of all that they are made from."""
    for view in views:
        yield view.producer
        for topic in all_inputs(made_by, view.inputs):
            made = made_by(topic)
            if made is not None:
                yield made.producer


def _awaited(log: Log, lookup: Lookup, views: Sequence[Made], cut: AppendNumber, deadline: float) -> tuple[str, ...]:
    """Wait until all have come to the cut; those that have not in time, or have passed it by."""
    while True:
        newest = log.snapshot([]).number
        stands = {made.name: standing(log, lookup.made_by, made, cut) for made in views}
        behind = tuple(name for name, each in stands.items() if each.number is None)
        passed = any(each.passed for each in stands.values())
        if not behind or passed or time.monotonic() >= deadline:
            return behind
        log.wait(newest, WAKE_S)


def _read(
    log: Log, made_by: MadeBy, views: Sequence[View], made: Mapping[str, Made], cut: AppendNumber
) -> Moment | None:
    tables: dict[str, pa.Table] = {}
    covers: dict[str, dict[int, int]] = {}
    for view in views:
        own = made[view.name]
        number = standing(log, made_by, own, cut).number
        end = Position.of({own.topic: log.position_at(own.topic, number)}) if number is not None else None
        rows = view.rows_at(own, end) if end is not None else None
        if rows is None:
            return None
        tables[view.name] = rows
        covers |= covered_by(log, made_by, own, at=number).as_dict()
    return Moment(cut, Position.of(covers), MappingProxyType(tables))
