"""Counting by weights: no rows are kept, only what is counted, so a hot key costs no more than a cold one.

State: `groups`, one row a group with its number of rows (the weight) and its counts; and for every `count(DISTINCT x)`
one arrangement of (group, x) with the number of times x is there. A value enters the distinct count when that number
becomes positive and leaves it when it stops being so. With `until`, each of them has a queue of what is to be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.keyhash import Hashes, distinct, key_hash
from headwater.process import duck
from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.combining import ints
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.operator import Answer, State
from headwater.records import WEIGHT

ROWS = "_rows"


@dataclass(frozen=True)
class Aggregate:
    """GROUP BY `keys` of the input. The answer has the keys, `_rows` for count(*), and the named counts.

    `counts` and `distinct` map the name of an answer to the input column that is counted.

    With `until`, one of the keys, groups are bound to a time, as windows are to their end: once the watermark is more
    than `retain` (µs) past it, a group is dropped from the state without a word; its row stays in the view. Records
    that would still have changed it are late by then, and do not come.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    counts: tuple[tuple[str, str], ...]
    distinct: tuple[tuple[str, str], ...]
    until: str | None = None
    retain: int = 0

    revision = 2

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        rows = changes.get(0, self.input.empty_table())
        delta = self._group_changes(rows)
        for name, column in self.distinct:
            delta = self._with_distinct(state, delta, rows, name, column, watermark)
        groups = state.arrangement("groups", self._groups)
        hashes = key_hash([delta.column(key) for key in self.keys])
        before = groups.gather(distinct(hashes))
        answer = self._answer(delta, before)
        groups.add(delta, hashes)
        self._drop_past(state, "groups", groups, delta, hashes, before, watermark)
        return Answer(answer)

    def _group_changes(self, rows: pa.Table) -> pa.Table:
        counted = "".join(
            f", coalesce(sum({WEIGHT}) FILTER ({duck.quoted(column)} IS NOT NULL), 0)::BIGINT AS {duck.quoted(name)}"
            for name, column in self.counts
        )
        keys = duck.columns(self.keys)
        return duck.run(
            f"SELECT {keys}, sum({WEIGHT})::BIGINT AS {WEIGHT}{counted} FROM rows GROUP BY {keys}", rows=rows
        )

    def _with_distinct(
        self, state: State, delta: pa.Table, rows: pa.Table, name: str, column: str, watermark: int | None
    ) -> pa.Table:
        """The changes of one distinct count, joined to the other changes of each group."""
        wanted = (*self.keys, column)
        values = state.arrangement(f"distinct {name}", self._values(column))
        seen = duck.columns(wanted)
        changed = duck.run(
            f"SELECT {seen}, sum({WEIGHT})::BIGINT AS {WEIGHT} FROM rows WHERE {duck.quoted(column)} IS NOT NULL"
            f" GROUP BY {seen} HAVING sum({WEIGHT}) <> 0",
            rows=rows,
        )
        hashes = key_hash([changed.column(field) for field in wanted])
        before = values.gather(distinct(hashes))
        values.add(changed, hashes)
        self._drop_past(state, f"distinct {name}", values, changed, hashes, before, watermark)
        return duck.run(
            f"""
            WITH before AS (SELECT {seen}, sum({WEIGHT}) AS times FROM old GROUP BY {seen}),
            moved AS (
              SELECT {duck.columns(self.keys, of="c")},
                (coalesce(b.times, 0) + c.{WEIGHT} > 0)::BIGINT - (coalesce(b.times, 0) > 0)::BIGINT AS step
              FROM changed c LEFT JOIN before b ON {_same(wanted, "c", "b")}),
            steps AS (SELECT {duck.columns(self.keys)}, sum(step)::BIGINT AS step FROM moved GROUP BY ALL)
            SELECT d.*, coalesce(s.step, 0)::BIGINT AS {duck.quoted(name)}
            FROM delta d LEFT JOIN steps s ON {_same(self.keys, "d", "s")}""",
            changed=changed,
            old=before,
            delta=delta,
        )

    def _drop_past(
        self,
        state: State,
        name: str,
        kept: Arrangement,
        changed: pa.Table,
        hashes: Hashes,
        before: pa.Table,
        watermark: int | None,
    ) -> None:
        """Rows of an arrangement that are bound to a time: those that begin are entered, those past it taken away."""
        if self.until is None:
            return
        expiry = Expiry(state, f"{name} expiry")
        times = ints(changed, self.until)
        begins = (times != NEVER) & ~np.isin(hashes, key_hash([before.column(key) for key in kept.shape.key]))
        expiry.enter(hashes[begins], after(times[begins], self.retain))
        if watermark is not None:
            due = kept.gather(expiry.take(watermark))
            times = ints(due, self.until)
            due = due.take(np.flatnonzero((times != NEVER) & (after(times, self.retain) < watermark)))
            for column in kept.shape.additive:
                due = due.set_column(due.schema.get_field_index(column), column, pc.negate(due[column]))
            kept.add(due)

    def _answer(self, delta: pa.Table, old: pa.Table) -> pa.Table:
        """The row of each touched group as it was, taken away, and as it is, put in its place."""
        numbers = [WEIGHT, *self._numbers]
        keys = duck.columns(self.keys)
        sums = ", ".join(f"sum({duck.quoted(name)})::BIGINT AS {duck.quoted(name)}" for name in numbers)
        shown = ", ".join([f"{WEIGHT} AS {ROWS}", *(duck.quoted(name) for name in self._numbers)])
        return duck.run(
            f"""
            WITH before AS (SELECT {keys}, {sums} FROM old GROUP BY {keys}),
            touched AS (SELECT b.* FROM before b JOIN delta d ON {_same(self.keys, "b", "d")}),
            now AS (SELECT {keys}, {sums} FROM (FROM touched UNION ALL BY NAME FROM delta) GROUP BY {keys}),
            shown AS (
              SELECT {keys}, {shown}, -1::BIGINT AS w FROM touched WHERE {WEIGHT} > 0
              UNION ALL SELECT {keys}, {shown}, 1::BIGINT FROM now WHERE {WEIGHT} > 0)
            SELECT * EXCLUDE (w), sum(w)::BIGINT AS {WEIGHT} FROM shown GROUP BY ALL HAVING sum(w) <> 0
            ORDER BY ALL""",
            delta=delta,
            old=old,
        )

    @property
    def _numbers(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (*self.counts, *self.distinct))

    def _values(self, column: str) -> Shape:
        wanted = (*self.keys, column)
        schema = pa.schema([*(self.input.field(name) for name in wanted), pa.field(WEIGHT, pa.int64())])
        return Shape(schema, wanted, (WEIGHT,), compact=True)

    @property
    def _groups(self) -> Shape:
        numbers = (WEIGHT, *self._numbers)
        fields = [self.input.field(key) for key in self.keys] + [pa.field(name, pa.int64()) for name in numbers]
        return Shape(pa.schema(fields), self.keys, numbers, compact=True)


def _same(names: tuple[str, ...], a: str, b: str) -> str:
    """Equality that also holds between nulls: the equality of GROUP BY."""
    return " AND ".join(f"{a}.{duck.quoted(name)} IS NOT DISTINCT FROM {b}.{duck.quoted(name)}" for name in names)
