"""Rows that are there for a span of the clock: `WHERE at > now() - INTERVAL '5 minutes'`.

A row has the moment from which and the one until which it is there. Ticks arrive in every bucket as rows of a port of
their own; `now` is the last of them. A row goes on when a tick has reached its first moment, and is taken away again
when one has reached its last.

State: `rows`, those that are still to appear or to leave; `due`, when; `now`, the last tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.process.keyed.arrangement import GONE, Arrangement, Shape
from headwater.process.keyed.bykey import Mask, hashes_of
from headwater.process.keyed.combining import ints
from headwater.process.keyed.expiry import Expiry
from headwater.process.keyed.fixed import Ints, typed
from headwater.process.keyed.operator import Answer, State
from headwater.process.keyed.weighing import netted
from headwater.records import WEIGHT

ROWS, TICKS = 0, 1
FROM, UNTIL = "_from", "_until"
DUE = "due"
FIRST, LAST = -(2**62), 2**62
"""Moments for rows without one: after no tick, and never."""
_NO_TICK = -(2**63)
_AT = "at"
_NOW = Shape(pa.schema([(_AT, pa.int64()), (GONE, pa.bool_())]), (), newest=(_AT,))


@dataclass(frozen=True)
class Expire:
    """`input` has the columns `_from` (inclusive) and `_until` (exclusive), in µs, which are not in the answer."""

    input: pa.Schema

    revision = 1

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        names = tuple(name for name in self.input.names if name != WEIGHT)
        kept = state.arrangement("rows", Shape(self.input, names, (WEIGHT,), compact=True))
        due = Expiry(state, DUE)
        was, now = _moved(state.arrangement("now", _NOW), changes.get(TICKS))
        crossing = kept.gather(due.take(now)) if now > was else self.input.empty_table()
        crossing = crossing.filter(pa.array(_next(crossing, was) <= now))
        came = typed(changes.get(ROWS, self.input.empty_table()), self.input)
        answer = netted(
            pa.concat_tables(
                [
                    _negated(crossing.filter(pa.array(_there(crossing, was)))),
                    crossing.filter(pa.array(_there(crossing, now))),
                    came.filter(pa.array(_there(came, now))),
                ]
            ).drop_columns([FROM, UNTIL])
        )
        # What has no further moment need not be kept: if it is taken away later, that goes on, or does not matter.
        kept.add(_negated(crossing.filter(pa.array(_next(crossing, now) >= LAST))))
        kept.add(came.filter(pa.array(_next(came, now) < LAST)))
        for rows in (crossing, came):
            moments = _next(rows, now)
            awaited = moments < LAST
            due.enter(hashes_of(rows, names)[awaited], moments[awaited] - 1)
        return Answer(answer)


def _moved(held: Arrangement, ticks: pa.Table | None) -> tuple[int, int]:
    """The last tick before this batch and the one after it; time does not go back."""
    known = held.newest(np.zeros(1, np.uint64))
    was = known[_AT][0].as_py() if known.num_rows else _NO_TICK
    now = max(was, int(ints(ticks, _AT).max())) if ticks is not None and ticks.num_rows else was
    if now > was:
        held.add(pa.table({_AT: [now], GONE: [False]}))
    return was, now


def _there(rows: pa.Table, now: int) -> Mask:
    return (ints(rows, FROM) <= now) & (now < ints(rows, UNTIL))


def _next(rows: pa.Table, now: int) -> Ints:
    """When each row will next appear or leave, seen from `now`; `LAST` or later for never."""
    begin, end = ints(rows, FROM), ints(rows, UNTIL)
    return np.where(now < begin, begin, np.where(now < end, end, LAST))


def _negated(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(WEIGHT), WEIGHT, pc.negate(rows[WEIGHT]))
