"""The universal operator: any SQL over the rows of a key, evaluated without and with the changes.

Rows of the touched keys are gathered, the query runs on them as they were and as they are, and the difference goes on.
State: `in0`, `in1`, ...: the rows of each input by its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import distinct
from headwater.process import duck
from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.fixed import typed
from headwater.process.keyed.forgetting import Forget
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.weighing import present
from headwater.records import WEIGHT

_BEGUN = Shape(pa.schema([("begun", pa.int64())]), ())


@dataclass(frozen=True)
class Recompute:
    """`sql` speaks of `in0`, `in1`, ... as bags of rows without weights, each sorted by all its columns: so what SQL
    leaves open (ties, the order of a list, of a floating sum) has one answer. `keys` are those columns of each input
    that must agree for two rows to have anything to do with each other; without any, all rows have.

    `keep`, for a single input from which nothing is ever taken away, selects the rows that can still matter: others,
    such as those that are not among the first ten, are not kept.
    `forget` says which rows can be left out once event time has come so far, without changing what is answered later.
    `always`: the query answers a row even over nothing, from the view's first batch on.
    """

    inputs: tuple[pa.Schema, ...]
    keys: tuple[tuple[str, ...], ...]
    sql: str
    keep: str | None = None
    always: bool = False
    forget: Forget | None = None

    revision = 2
    netted = True

    @property
    def found_by(self) -> FoundBy | None:
        return self.keys if self.forget is None and not self.always else None

    @property
    def begins_with(self) -> pa.Schema | None:
        """What arrives in the first batch, though it be nothing."""
        return self.inputs[0] if self.always else None

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        arranged = [
            state.arrangement(f"in{place}", Shape(schema, key, (WEIGHT,), compact=False))
            for place, (schema, key) in enumerate(zip(self.inputs, self.keys, strict=True))
        ]
        if not changes:
            self._forget(state, arranged, watermark)
            return Answer(_counted(self._answer([schema.empty_table() for schema in self.inputs]).slice(0, 0)))
        came = [changes.get(place, schema.empty_table()) for place, schema in enumerate(self.inputs)]
        came = [typed(rows, schema) for rows, schema in zip(came, self.inputs, strict=True)]
        hashes = [hashes_of(rows, key) for rows, key in zip(came, self.keys, strict=True)]
        touched = distinct(np.concatenate(hashes))
        old = [each.gather(touched) for each in arranged]
        new = [pa.concat_tables(pair) for pair in zip(old, came, strict=True)]
        was_there = [present(rows) for rows in old]
        is_there = [present(rows) for rows in new]
        if self.keep is not None:
            self._keep(arranged[0], old[0], is_there[0])
        else:
            for each, rows, own in zip(arranged, came, hashes, strict=True):
                each.add(rows, own)
        if self.forget is not None:
            self.forget.enter(state, came, hashes)
        self._forget(state, arranged, watermark)
        before = self._answer(was_there) if self._had_answer(state, was_there) else None
        after = self._answer(is_there)
        if before is None or before.num_rows == 0:
            return Answer(_counted(after))
        return Answer(
            duck.run(
                f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM (SELECT *, -1 AS {WEIGHT} FROM before"
                f" UNION ALL SELECT *, 1 FROM after) GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
                before=before,
                after=after,
            )
        )

    def _answer(self, rows: list[pa.Table]) -> pa.Table:
        return duck.run(self.sql, **{f"in{place}": table for place, table in enumerate(rows)})

    def _forget(self, state: State, arranged: list[Arrangement], watermark: int | None) -> None:
        if self.forget is not None and watermark is not None:
            self.forget.forget(state, arranged, watermark)

    def _had_answer(self, state: State, rows: list[pa.Table]) -> bool:
        if not self.always:
            return any(table.num_rows for table in rows)
        begun = state.arrangement("begun", _BEGUN)
        had = bool(begun.manifest.refs)
        if not had:
            begun.add(pa.table({"begun": [1]}))
        return had

    def _keep(self, kept: Arrangement, old: pa.Table, rows: pa.Table) -> None:
        """Of the rows that are there only those that matter are kept."""
        assert self.keep is not None
        matter = duck.run(self.keep, in0=rows)
        names = duck.columns([name for name in kept.shape.schema.names if name != WEIGHT])
        kept.add(
            duck.run(
                f"SELECT {names}, sum({WEIGHT})::BIGINT AS {WEIGHT} FROM ("
                f"SELECT {names}, -{WEIGHT} AS {WEIGHT} FROM old UNION ALL SELECT {names}, 1 FROM matter"
                f") GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
                old=old,
                matter=matter,
            )
        )


def _counted(rows: pa.Table) -> pa.Table:
    return duck.run(f"SELECT *, count(*) AS {WEIGHT} FROM rows GROUP BY ALL", rows=rows)
