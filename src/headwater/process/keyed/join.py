"""Joins on equality: pairs by dA x B_new + A_old x dB, and rows that match nothing. Keys that did not change are never
touched.

State: `left` and `right`, the rows of both sides by their keys; with `left_until` or `right_until`, when to drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.keyhash import Hashes, distinct
from headwater.process import duck
from headwater.process.keyed.arrangement import HASH, Arrangement, Shape
from headwater.process.keyed.bykey import hashes_of
from headwater.process.keyed.combining import ints
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.first import First
from headwater.process.keyed.fixed import typed
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.pairing import Pairs, Side, paired
from headwater.process.keyed.weighing import net, netted, one_by_one, only_added
from headwater.records import WEIGHT

LEFT, RIGHT = 0, 1
_PLACE = "_pair"

Part = Literal["pairs", "left only", "right only", "left matched"]
Until = tuple[str, int]


@dataclass(frozen=True)
class Join:
    """What the join consists of is said by its parts:

    inner  pairs                 left   pairs + left only        full  pairs + left only + right only
    semi   left matched          anti   left only

    `output` are columns of either side, `on` is what must hold besides the equality; weights multiply. In rows that
    match nothing the other side is null. `net` may be left out where no row of either side is ever taken away: then
    all weights are 1.

    `first`, where `net` is left out: of the pairs only those need to be told that are among the first of their key.
    These are found by few columns, and only they are put together from all.

    `left_until` and `right_until` bind a side's rows to a time: (column, µs). Once the watermark is more than that past
    it, a row can match nothing that is yet to come, and is dropped from the state; what it has matched stays.
    """

    left: pa.Schema
    right: pa.Schema
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    output: tuple[str, ...]
    on: str | None = None
    parts: tuple[Part, ...] = ("pairs",)
    net: bool = True
    left_until: Until | None = None
    right_until: Until | None = None
    first: First | None = None

    revision = 4

    @property
    def found_by(self) -> FoundBy | None:
        return None if self.left_until or self.right_until else (self.left_key, self.right_key)

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        lefts, rights = (state.arrangement(side, shape) for side, shape in self._kept.items())
        left = changes.get(LEFT, self.left.empty_table())
        right = changes.get(RIGHT, self.right.empty_table())
        left_hashes, right_hashes = hashes_of(left, self.left_key), hashes_of(right, self.right_key)
        sides = Side(left, left_hashes, self.left_key), Side(right, right_hashes, self.right_key)
        only_pairs = self.parts == ("pairs",) and self.left_key
        answer = (self._by_pairs if only_pairs else self._by_sql)(lefts, rights, *sides)
        _drop(state, "left expiry", lefts, left, left_hashes, self.left_until, watermark)
        _drop(state, "right expiry", rights, right, right_hashes, self.right_until, watermark)
        return Answer(answer if self.net else one_by_one(answer))

    def _by_pairs(self, lefts: Arrangement, rights: Arrangement, left: Side, right: Side) -> pa.Table:
        old = lefts.hashed(distinct(right.hashes))
        rights.add(right.rows, right.hashes)
        new = rights.hashed(distinct(left.hashes))
        lefts.add(left.rows, left.hashes)
        pairs = [
            paired(left, Side(new, new[HASH].to_numpy(), self.right_key)),
            paired(Side(old, old[HASH].to_numpy(), self.left_key), right),
        ]
        return self._pairs_told([each for each in pairs if len(each)])

    def _by_sql(self, lefts: Arrangement, rights: Arrangement, left: Side, right: Side) -> pa.Table:
        left_touched, right_touched = distinct(left.hashes), distinct(right.hashes)
        tables = {"dl": left.rows, "dr": right.rows, "l_old": lefts.gather(right_touched)}
        if self._looks_left:
            tables["r_before"] = rights.gather(right_touched)
        if "right only" in self.parts:
            tables["r_old"] = rights.gather(left_touched)
            tables["l_before"] = lefts.gather(left_touched)
        rights.add(right.rows, right.hashes)
        tables["r_new"] = rights.gather(left_touched)
        lefts.add(left.rows, left.hashes)
        if self._looks_left:
            tables["r_after"] = rights.gather(right_touched)
        if "right only" in self.parts:
            tables["l_new"] = lefts.gather(right_touched)
            tables["l_after"] = lefts.gather(left_touched)
        return duck.run(self._sql(tables), **tables)

    # --- pairs ---

    def _pairs_told(self, pairs: list[Pairs]) -> pa.Table:
        chosen = [self._on(each) for each in pairs] if self.on is not None else pairs
        if self.first is not None and not self.net:
            chosen = _only_first(self.first, chosen)
        told = [self._told.empty_table()]
        for each in chosen:
            if len(each):
                rows = each.columns(self.output)
                told.append(typed(rows.append_column(WEIGHT, pa.array(each.weights(WEIGHT))), self._told))
        answer = pa.concat_tables(told)
        if answer.num_rows <= duck.FEW:  # whoever sums them finds what cancels
            return answer
        return netted(answer) if self.net and not only_added(answer) else answer

    def _on(self, pairs: Pairs) -> Pairs:
        """Those for which the condition holds, asked of the columns that it speaks of."""
        assert self.on is not None
        names = [name for name in (*self.left.names, *self.right.names) if duck.quoted(name) in self.on]
        rows = pairs.columns([name for name in names if name != WEIGHT]) if names else pa.table({})
        rows = rows.append_column(_PLACE, pa.array(np.arange(len(pairs))))
        found = duck.run(f"SELECT {_PLACE} FROM pairs WHERE {self.on}", pairs=rows)
        return pairs if found.num_rows == len(pairs) else pairs.only(found[_PLACE].to_numpy())

    @cached_property
    def _kept(self) -> dict[str, Shape]:
        return {
            "left": Shape(self.left, self.left_key, (WEIGHT,), compact=False),
            "right": Shape(self.right, self.right_key, (WEIGHT,), compact=False),
        }

    @cached_property
    def _told(self) -> pa.Schema:
        sides = {**{field.name: field for field in self.right}, **{field.name: field for field in self.left}}
        return pa.schema([*(sides[name] for name in self.output), pa.field(WEIGHT, pa.int64())])

    # --- also rows that match nothing ---

    @property
    def _looks_left(self) -> bool:
        return "left only" in self.parts or "left matched" in self.parts

    def _sql(self, tables: Mapping[str, pa.Table]) -> str:
        pieces: list[tuple[str, tuple[str, ...]]] = []  # with the tables without which it has no rows
        if "pairs" in self.parts:
            pieces += [(self._pairs("dl", "r_new"), ("dl", "r_new")), (self._pairs("l_old", "dr"), ("l_old", "dr"))]
        for part, exists in (("left only", "NOT EXISTS"), ("left matched", "EXISTS")):
            if part in self.parts:
                pieces += [
                    (self._left("dl", exists, "r_new", 1), ("dl",)),
                    (self._left("l_old", exists, "r_after", 1), ("l_old",)),
                    (self._left("l_old", exists, "r_before", -1), ("l_old",)),
                ]
        if "right only" in self.parts:
            pieces += [
                (self._right("dr", "l_new", 1), ("dr",)),
                (self._right("r_old", "l_after", 1), ("r_old",)),
                (self._right("r_old", "l_before", -1), ("r_old",)),
            ]
        worth = [sql for sql, needs in pieces if all(tables[name].num_rows for name in needs)]
        union = " UNION ALL ".join(worth or [f"{pieces[0][0]} LIMIT 0"])
        cancels = self.parts != ("pairs",) or not all(map(only_added, tables.values()))
        return net(union) if self.net and cancels else union

    def _pairs(self, left: str, right: str) -> str:
        weight = f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
        return f"SELECT {duck.columns(self.output)}, {weight} FROM {left} AS l JOIN {right} AS r ON {self._match}"

    def _left(self, left: str, exists: str, right: str, sign: int) -> str:
        return (
            f"SELECT {duck.columns(self.output)}, {sign} * l.{WEIGHT} AS {WEIGHT}"
            f" FROM {left} AS l, {_nothing(self.right, 'dr')} AS r"
            f" WHERE {exists} (FROM {_present(self.right, right)} AS r WHERE {self._match})"
        )

    def _right(self, right: str, left: str, sign: int) -> str:
        return (
            f"SELECT {duck.columns(self.output)}, {sign} * r.{WEIGHT} AS {WEIGHT}"
            f" FROM {right} AS r, {_nothing(self.left, 'dl')} AS l"
            f" WHERE NOT EXISTS (FROM {_present(self.left, left)} AS l WHERE {self._match})"
        )

    @property
    def _match(self) -> str:
        pairs = zip(self.left_key, self.right_key, strict=True)
        equal = [f"l.{duck.quoted(a)} = r.{duck.quoted(b)}" for a, b in pairs]
        return " AND ".join([*equal, *([f"({self.on})"] if self.on else [])]) or "true"


def _drop(
    state: State,
    name: str,
    side: Arrangement,
    came: pa.Table,
    hashes: Hashes,
    until: Until | None,
    watermark: int | None,
) -> None:
    if until is None:
        return
    column, span = until
    expiry = Expiry(state, name)
    times = ints(came, column)
    expiry.enter(hashes[times != NEVER], after(times[times != NEVER], span))
    if watermark is None:
        return
    due = side.gather(expiry.take(watermark))
    times = ints(due, column)
    past = due.filter(pa.array((times != NEVER) & (after(times, span) < watermark)))
    place = past.schema.get_field_index(WEIGHT)
    side.add(past.set_column(place, WEIGHT, pc.negate(past[WEIGHT])))


def _only_first(first: First, pairs: list[Pairs]) -> list[Pairs]:
    narrow = [
        each.columns(first.columns)
        .append_column("side", pa.array(np.full(len(each), number)))
        .append_column(_PLACE, pa.array(np.arange(len(each))))
        for number, each in enumerate(pairs)
    ]
    if not narrow:
        return pairs
    found = first.of(pa.concat_tables(narrow))
    side, place = found["side"].to_numpy(), found[_PLACE].to_numpy()
    return [each.only(place[side == number]) for number, each in enumerate(pairs)]


def _nothing(side: pa.Schema, table: str) -> str:
    """One row of nulls, of the side's types."""
    nulls = ", ".join(f"any_value({duck.quoted(name)}) AS {duck.quoted(name)}" for name in side.names)
    return f"(SELECT {nulls} FROM {table} WHERE false)"


def _present(side: pa.Schema, table: str) -> str:
    """The rows that are there, of rows that came and went."""
    names = duck.columns([name for name in side.names if name != WEIGHT])
    return f"(SELECT {names} FROM {table} GROUP BY ALL HAVING sum({WEIGHT}) > 0)"
