"""Sessions of rows that are only added: a key's rows that are never further apart than a gap, as one row with numbers.

A session is kept, not its rows: what comes costs what it touches, however long a key's history is.

State: `sessions`, one row a session, with its first and last moment (µs; a row without a time is at `NO_TIME`, where
those of its key are a session of their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes, distinct
from headwater.process import duck
from headwater.process.keyed.aggregate import ROWS, combined
from headwater.process.keyed.arrangement import HASH, Shape
from headwater.process.keyed.bykey import by_key, hashes_of
from headwater.process.keyed.fixed import Ints, typed
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.summing import How
from headwater.process.keyed.weighing import netted, only_added, weighed
from headwater.records import WEIGHT

FIRST, LAST = "_first", "_last"
NO_TIME = -(2**62)
_SESSION = "_session"


@dataclass(frozen=True)
class Sessions:
    """`input` has the keys, `_first` and `_last`, the numbers of `how`, and `_weight`, the number of rows behind it.
    The answer has the keys, both moments, `_rows`, the numbers, and `_weight`."""

    input: pa.Schema
    keys: tuple[str, ...]
    gap: int
    how: tuple[tuple[str, How], ...] = ()

    revision = 1
    netted = True

    @property
    def found_by(self) -> FoundBy | None:
        return (self.keys,)

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        kept = state.arrangement("sessions", Shape(self._kept, self.keys, (WEIGHT,), compact=True))
        came = typed(changes.get(0, self.input.empty_table()), self.input)
        came = came.rename_columns([ROWS if name == WEIGHT else name for name in self.input.names])
        hashes = hashes_of(came, self.keys)
        before = kept.hashed(distinct(hashes))
        before = before if only_added(before) else netted(before)
        names = [name for name in self._kept.names if name != WEIGHT]
        rows = pa.concat_tables([before.select(names), came.select(names)])
        numbers = self._numbered(rows, np.concatenate([before[HASH].to_numpy(), hashes]), before.num_rows)
        after = self._joined(rows, numbers)
        answer = weighed(rows.schema, [(before, -1), (after, 1)])
        answer = netted(answer) if before.num_rows else answer
        kept.add(answer)
        return Answer(answer)

    def _numbered(self, rows: pa.Table, hashes: Hashes, known: int) -> Ints:
        """For each row the number of the session to which it belongs; the first of them are sessions that were known,
        which lie apart, the others are moments."""
        first, last = rows[FIRST].to_numpy(), rows[LAST].to_numpy()
        by = by_key(rows, self.keys, hashes, [first, np.arange(len(first))])
        first, last = first[by.order], last[by.order]
        places = np.arange(len(first))
        begin = np.zeros(len(first), np.int64)
        begin[by.starts] = by.starts
        begin = np.maximum.accumulate(begin) if len(begin) else begin
        earlier = np.maximum.accumulate(np.where(by.order < known, places, -1)) if len(begin) else begin
        reach = np.where(earlier >= begin, np.maximum(last, last[earlier]), last)
        begins = np.ones(len(first), np.bool_)
        begins[1:] = (begin[1:] == places[1:]) | (first[1:] > reach[:-1] + self.gap)
        sessions = np.empty(len(first), np.int64)
        sessions[by.order] = np.cumsum(begins)
        return sessions

    def _joined(self, rows: pa.Table, numbers: Ints) -> pa.Table:
        """Rows of one session as one."""
        keys = "".join(f"any_value({duck.quoted(key)}) AS {duck.quoted(key)}, " for key in self.keys)
        told = "".join(f", {combined(how, name, self.input.field(name).type)}" for name, how in self.how)
        return duck.run(
            f"SELECT {keys}min({FIRST}) AS {FIRST}, max({LAST}) AS {LAST}, sum({ROWS})::BIGINT AS {ROWS}{told}"
            f" FROM rows GROUP BY {_SESSION}",
            rows=rows.append_column(_SESSION, pa.array(numbers)),
        )

    @property
    def _kept(self) -> pa.Schema:
        keys = [self.input.field(key) for key in self.keys]
        numbers = [self.input.field(name) for name, _ in self.how]
        times = [pa.field(name, pa.int64()) for name in (FIRST, LAST, ROWS)]
        return pa.schema([*keys, *times, *numbers, pa.field(WEIGHT, pa.int64())])
