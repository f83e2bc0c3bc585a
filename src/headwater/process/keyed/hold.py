"""Rows held back until nothing can change them any more: `emit="final"`.

State: `rows`, what has come so far, net; `expiry`, when to let it go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.process.keyed.arrangement import Shape
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.combining import ints
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.fixed import typed
from headwater.process.keyed.operator import Answer, State
from headwater.process.keyed.weighing import netted
from headwater.records import WEIGHT


@dataclass(frozen=True)
class Hold:
    """A row goes on once the watermark is more than `wait` (µs) past its `until`; one without a time does at once."""

    input: pa.Schema
    until: str
    wait: int

    revision = 1

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        names = tuple(name for name in self.input.names if name != WEIGHT)
        rows = state.arrangement("rows", Shape(self.input, names, (WEIGHT,), compact=True))
        expiry = Expiry(state)
        came = typed(changes.get(0, self.input.empty_table()), self.input)
        times = ints(came, self.until)
        at_once = came.filter(pa.array(times == NEVER))
        came, times = came.filter(pa.array(times != NEVER)), times[times != NEVER]
        hashes = hashes_of(came, names)
        rows.add(came, hashes)
        expiry.enter(hashes, after(times, self.wait))
        if watermark is None:
            return Answer(at_once)
        due = rows.gather(expiry.take(watermark))
        due = due.filter(pa.array(after(ints(due, self.until), self.wait) < np.int64(watermark)))
        place = due.schema.get_field_index(WEIGHT)
        rows.add(due.set_column(place, WEIGHT, pc.negate(due[WEIGHT])))
        return Answer(pa.concat_tables([at_once, netted(due).cast(self.input)]))
