"""Rows that nothing can change any more, and that change nothing any more, leave the state of `recompute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process import duck
from headwater.process.keyed.arrangement import Arrangement
from headwater.process.keyed.combining import ints
from headwater.process.keyed.expiry import NEVER, Expiry
from headwater.process.keyed.operator import State
from headwater.process.keyed.weighing import present
from headwater.records import WEIGHT

NOW = "watermark_us"
"""What a `keep` query calls the watermark."""
_DUE = "due"


@dataclass(frozen=True)
class Forget:
    """`due` is, for each input, SQL over a row: the event time (µs) after which its key is to be looked at, null for
    never. `keep` selects, for each input, the rows of `in0`, `in1`, ... that still matter, given `watermark_us`."""

    due: tuple[str, ...]
    keep: tuple[str, ...]

    def enter(self, state: State, came: Sequence[pa.Table], hashes: Sequence[Hashes]) -> None:
        for due, rows, own in zip(self.due, came, hashes, strict=True):
            if rows.num_rows:
                times = ints(duck.run(f"SELECT ({due})::BIGINT AS {_DUE} FROM rows", rows=rows), _DUE)
                known = times != NEVER
                Expiry(state).enter(own[known], times[known])

    def forget(self, state: State, arranged: Sequence[Arrangement], watermark: int) -> None:
        due = Expiry(state).take(watermark)
        if not len(due):
            return
        held = [each.gather(due) for each in arranged]
        told = {f"in{place}": present(rows) for place, rows in enumerate(held)}
        now = pa.table({NOW: pa.array([watermark], pa.int64())})
        for each, rows, keep in zip(arranged, held, self.keep, strict=True):
            kept = duck.run(keep, **told, **{NOW: now})
            each.add(_difference(rows, kept))


def _difference(held: pa.Table, kept: pa.Table) -> pa.Table:
    """What is to be added to have only the rows that are kept."""
    names = duck.columns([name for name in held.schema.names if name != WEIGHT])
    return duck.run(
        f"SELECT {names}, sum({WEIGHT})::BIGINT AS {WEIGHT} FROM ("
        f"SELECT {names}, -{WEIGHT} AS {WEIGHT} FROM held UNION ALL SELECT {names}, 1 FROM kept"
        f") GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
        held=held,
        kept=kept,
    )
