"""A view as it was: at a time, or when it first covered a position; from its topic, as far as that still tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from headwater.errors import NotAnInput, NotCovered, PastGone
from headwater.log.coverage import Made, MadeBy, all_inputs, covered_by
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log
from headwater.serve.past import present, rows_at


def state_as_of(log: Log, made_by: MadeBy, made: Made, as_of: Position | datetime) -> pa.Table:
    """The rows that a version of a view showed at that time, or the first of all that covered that position."""
    if isinstance(as_of, datetime):
        moment = int(as_of.astimezone(UTC).timestamp() * 1_000_000)
        end = log.position_from(made.topic, moment + 1)
    else:
        end = log.position_at(made.topic, _first_covering(log, made_by, made, as_of))
    rows = rows_at(log, made.topic, Position.of({made.topic: end}))
    if rows is None:
        raise PastGone(view=made.name, as_of=str(as_of))
    return present(rows)


def _first_covering(log: Log, made_by: MadeBy, made: Made, asked: Position) -> AppendNumber:
    reads = all_inputs(made_by, made.inputs)
    wanted = asked.only(reads)
    if asked.topics and not wanted.topics:
        raise NotAnInput(view=made.name, asked=asked.topics, reads=reads)
    last = log.covered(made.producer)
    covers = covered_by(log, made_by, made)
    if last is None or not covers.covers(wanted):
        raise NotCovered(view=made.name, asked=str(asked), covers=str(covers), timeout_s=0)
    # What was covered by an empty append below is known only now: then the newest append is the first that covers it.
    low, high = 0, last.number
    while low < high:
        middle = AppendNumber((low + high) // 2)
        low, high = (low, middle) if covered_by(log, made_by, made, at=middle).covers(wanted) else (middle + 1, high)
    return AppendNumber(low)
