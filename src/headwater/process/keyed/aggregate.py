"""GROUP BY from partial results: a row a group is kept, so a hot key costs no more than a cold one.

State: `groups`, one row a group with its number of rows (the weight) and its numbers; for each distinct count an
arrangement of (group, value) with the number of times the value is there; for each least or greatest value of rows that
can be taken away again, an arrangement of the group's values. With `until`, each has a queue of what is to be dropped.
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
from headwater.process.keyed.arrangement import GONE, HASH, Arrangement, Shape
from headwater.process.keyed.bykey import Mask, hashes_of, matched, same_rows, taken
from headwater.process.keyed.combining import ints
from headwater.process.keyed.counting import VALUE, counted, value_hashes
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.fixed import Ints, integers, typed
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.reducing import reduced
from headwater.process.keyed.summing import How
from headwater.process.keyed.weighing import netted, weighed
from headwater.records import WEIGHT

ROWS = "_rows"
_VERSION = "_version"


@dataclass(frozen=True)
class Distinct:
    """Counts of a column's distinct values. They arrive at a port of their own, as rows (keys, `_value`, names...):
    how many rows with that value came or went, for each count by its own FILTER."""

    kind: pa.DataType
    counts: tuple[str, ...]


@dataclass(frozen=True)
class Extreme:
    """A least or greatest value among rows that come and go: they arrive as rows (keys, `_value`, `_weight`)."""

    name: str
    kind: pa.DataType
    how: Literal["min", "max"]


@dataclass(frozen=True)
class Aggregate:
    """Port 0 brings partial results: the keys, `_weight` for the number of rows, and the numbers of `input`, each of
    which is combined as `how` says. Further ports are those of `distinct`, then those of `extremes`.
    The answer has the keys, `_rows`, all numbers by their names, and `_weight`.

    Without keys there is one group, which has a row from the view's first batch on, also when it is empty.

    With `until`, one of the keys, groups are bound to a time, as windows are to their end: once the watermark is more
    than `retain` (µs) past it, a group is dropped from the state without a word; its row stays in the view. Records
    that would still have changed it are late by then, and do not come.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    how: tuple[tuple[str, How], ...] = ()
    distinct: tuple[Distinct, ...] = ()
    extremes: tuple[Extreme, ...] = ()
    until: str | None = None
    retain: int = 0

    revision = 6
    netted = True

    @property
    def found_by(self) -> FoundBy | None:
        return (self.keys,) * (1 + len(self.distinct) + len(self.extremes)) if self.until is None else None

    @property
    def begins_with(self) -> pa.Schema | None:
        """What arrives in the first batch, though it be nothing: only a group without keys is there over nothing."""
        return None if self.keys else self.input

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        if not self.keys and not changes:  # the one group is in another bucket
            nothing = self._groups.stored.empty_table()
            return Answer(self._answer(nothing, nothing, np.zeros(0, np.uint64)))
        groups = state.arrangement("groups", self._groups)
        partial = [changes.get(0, self.input.empty_table())]
        for place, each in enumerate(self.distinct, start=1):
            partial.append(self._distinct_steps(state, place, each, changes.get(place), watermark))
        touched = distinct(hashes_of(partial[0], self.keys)) if self.keys else np.zeros(1, np.uint64)
        old = left = groups.newest(touched)
        for place, extreme in enumerate(self.extremes, start=1 + len(self.distinct)):
            values, anew = self._extreme_values(state, place, extreme, changes.get(place), old, watermark)
            partial.append(values)
            left = _without(left, extreme.name, anew)
        now, hashes = self._now(partial, left)
        answer = self._answer(old, now, hashes)
        groups.add(now, hashes)
        if self.until is not None:
            begins = ~np.isin(hashes, old[HASH].to_numpy())
            due = self._due(state, "groups", now, hashes, begins, watermark)
            past = groups.newest(due).drop_columns([HASH])
            past = self._past(past.filter(pc.invert(past[GONE])), watermark)
            groups.add(_gone(past))
        return Answer(answer)

    # --- the groups ---

    def _now(self, partial: list[pa.Table], old: pa.Table) -> tuple[pa.Table, Hashes]:
        """The row of each touched group as it will be, what it was and all that came or went; sorted by hash."""
        # Of a group that is gone only the version counts: it is still there to be outlived.
        gone = old[GONE].to_numpy()
        parts = [old.drop_columns([HASH, GONE]), *(self._typed(each) for each in partial if each.num_rows)]
        if gone.any():
            parts[0] = parts[0].filter(pa.array(~gone))
            parts.append(old.filter(pa.array(gone)).select([*self.keys, _VERSION]))
        rows = pa.concat_tables(parts, promote_options="default")
        how: list[tuple[str, How]] = [(WEIGHT, "sum"), *self._numbers, (_VERSION, "max")]
        now = reduced(rows, self.keys, how)
        if now is None:
            numbers = "".join(f", {combined(how, name, self._kind(name))}" for name, how in self._numbers)
            keys, grouped = (duck.columns(self.keys), " GROUP BY ALL") if self.keys else ("NULL AS _nothing", "")
            now = duck.run(
                f"SELECT {keys}, coalesce(sum({WEIGHT}), 0)::BIGINT AS {WEIGHT}{numbers}, max({_VERSION}) AS {_VERSION}"
                f" FROM rows{grouped}",
                rows=rows,
            )
        now = self._outlived(now)
        hashes = hashes_of(now, self.keys)
        order = np.argsort(hashes, kind="stable")
        return taken(now, order), hashes[order]

    def _typed(self, partial: pa.Table) -> pa.Table:
        """In the types in which numbers are kept."""
        return typed(partial, pa.schema([self._groups.schema.field(name) for name in partial.schema.names]))

    def _outlived(self, now: pa.Table) -> pa.Table:
        """With the version that follows the last one, and whether the group is gone."""
        version = pc.add(now[_VERSION].fill_null(0), 1)
        gone = np.full(now.num_rows, bool(self.keys))
        for name in (WEIGHT, *(name for name, how in self._numbers if how == "sum")):
            gone &= _is_zero(now[name])
        schema = self._groups.schema
        columns = {**dict(zip(now.schema.names, now.columns, strict=True)), _VERSION: version, GONE: pa.array(gone)}
        return typed(pa.table(columns), schema)

    def _answer(self, old: pa.Table, now: pa.Table, hashes: Hashes) -> pa.Table:
        """The row of each touched group as it was, taken away, and as it is, put in its place."""
        was, was_hashes = self._shown(old, old[HASH].to_numpy())
        became, hashes = self._shown(now, hashes)
        if self.keys:
            places, found = matched(became, hashes, was, was_hashes, self.keys)
        else:
            places, found = np.zeros(became.num_rows, np.int64), np.full(became.num_rows, bool(was.num_rows))
        pairs = np.flatnonzero(found)
        pairs = pairs[same_rows(taken(became, pairs), taken(was, places[pairs]))]
        return weighed(was.schema, [(_but(was, places[pairs]), -1), (_but(became, pairs), 1)])

    def _shown(self, groups: pa.Table, hashes: Hashes) -> tuple[pa.Table, Hashes]:
        """Those that are there, in the columns of the answer."""
        there = ~groups[GONE].to_numpy()
        if self.keys:
            there &= groups[WEIGHT].to_numpy() > 0
        shown = groups.select([*self.keys, *(name for name, _ in self._numbers), WEIGHT])
        shown = shown.rename_columns([*shown.schema.names[:-1], ROWS])
        return (shown, hashes) if there.all() else (shown.filter(pa.array(there)), hashes[there])

    # --- values of their own ---

    def _distinct_steps(
        self, state: State, place: int, told: Distinct, arrived: pa.Table | None, watermark: int | None
    ) -> pa.Table:
        """How much each distinct count of each group goes up or down."""
        schema = pa.schema([*self._key_fields, pa.field(VALUE, told.kind), *_int64(told.counts)])
        values = state.arrangement(f"distinct {place}", Shape(schema, (*self.keys, VALUE), told.counts, compact=True))
        came = schema.empty_table() if arrived is None else typed(arrived, schema)
        hashes = value_hashes(came, self.keys)
        seen = counted(came, hashes, values.hashed(distinct(hashes)), self.keys, told.counts)
        values.add(seen.changed, seen.hashes)
        if self.until is not None:
            due = self._due(state, f"distinct {place}", seen.changed, seen.hashes, seen.began, watermark)
            past = self._past(self._taken_back(values, due), watermark)
            values.add(past, value_hashes(past, self.keys))
        return seen.moved

    def _extreme_values(
        self, state: State, place: int, told: Extreme, arrived: pa.Table | None, old: pa.Table, watermark: int | None
    ) -> tuple[pa.Table, Hashes]:
        """Of each touched group the extreme of what came; or, where the extreme itself may have gone, that of all that
        is left, and the hashes of those groups."""
        schema = pa.schema([*self._key_fields, pa.field(VALUE, told.kind), pa.field(WEIGHT, pa.int64())])
        values = state.arrangement(f"extreme {place}", Shape(schema, self.keys, (WEIGHT,), compact=True))
        changed = schema.empty_table() if arrived is None else typed(arrived, schema)
        hashes = hashes_of(changed, self.keys)
        anew = _without_extreme(told, changed, hashes, old)
        known = values.gather(distinct(hashes)) if self.until is not None else None
        values.add(changed, hashes)
        came = changed.filter(pa.array(~np.isin(hashes, anew) & (changed[WEIGHT].to_numpy() > 0)))
        counted = pa.concat_tables([came, _there(values.gather(anew))]).drop_columns([WEIGHT])
        best = reduced(counted, self.keys, [(VALUE, told.how)])
        if best is None:
            keys = duck.columns(self.keys) + ", " if self.keys else ""
            grouped = f" GROUP BY {duck.columns(self.keys)}" if self.keys else ""
            best = duck.run(f"SELECT {keys}{told.how}({VALUE}) AS {VALUE} FROM rows{grouped}", rows=counted)
        if known is not None:  # what is past is dropped last: it counts in this batch
            begins = ~np.isin(hashes, hashes_of(known, self.keys))
            past = self._taken_back(values, self._due(state, f"extreme {place}", changed, hashes, begins, watermark))
            values.add(self._past(past, watermark))
        return best.rename_columns([*self.keys, told.name]), anew

    # --- what is past ---

    @staticmethod
    def _taken_back(kept: Arrangement, due: Hashes) -> pa.Table:
        """Rows that take away all that is kept of these hashes."""
        past = kept.gather(due)
        for column in kept.shape.additive:
            past = past.set_column(past.schema.get_field_index(column), column, pc.negate(past[column]))
        return past

    def _due(
        self,
        state: State,
        name: str,
        changed: pa.Table,
        hashes: Hashes,
        begins: np.ndarray[tuple[int], np.dtype[np.bool_]],
        watermark: int | None,
    ) -> Hashes:
        """Those that begin are entered into the queue; answers the hashes of those whose time has come."""
        assert self.until is not None
        expiry = Expiry(state, f"{name} expiry")
        times = ints(changed, self.until)
        begins = begins & (times != NEVER)
        expiry.enter(hashes[begins], after(times[begins], self.retain))
        return expiry.take(watermark) if watermark is not None else np.zeros(0, np.uint64)

    def _past(self, rows: pa.Table, watermark: int | None) -> pa.Table:
        assert self.until is not None
        times = ints(rows, self.until)
        mask = (times != NEVER) & (after(times, self.retain) < (NEVER if watermark is None else watermark))
        return rows.filter(pa.array(mask))

    # --- shapes ---

    @property
    def answered(self) -> list[tuple[str, How]]:
        """The numbers of the answer, by name."""
        return self._numbers

    @cached_property
    def _numbers(self) -> list[tuple[str, How]]:
        counted: list[tuple[str, How]] = [(name, "sum") for each in self.distinct for name in each.counts]
        return [*self.how, *counted, *((each.name, each.how) for each in self.extremes)]

    def _kind(self, name: str) -> pa.DataType:
        if name in self.input.names:
            return self.input.field(name).type
        return next((each.kind for each in self.extremes if each.name == name), pa.int64())

    @property
    def _key_fields(self) -> list[pa.Field]:
        return [self.input.field(key) for key in self.keys]

    @cached_property
    def _groups(self) -> Shape:
        numbers = [pa.field(name, self._kind(name)) for name, _ in self._numbers]
        kept = [pa.field(WEIGHT, pa.int64()), *numbers, pa.field(_VERSION, pa.int64()), pa.field(GONE, pa.bool_())]
        return Shape(pa.schema([*self._key_fields, *kept]), self.keys, newest=(_VERSION,))


def combined(how: How, name: str, kind: pa.DataType) -> str:
    column = duck.quoted(name)
    if how == "sum":
        width = f"DECIMAL(38, {kind.scale})" if pa.types.is_decimal(kind) else "BIGINT"
        return f"coalesce(sum({column}), 0)::{width} AS {column}"
    return f"{how}({column}) AS {column}"


def _without_extreme(told: Extreme, changed: pa.Table, hashes: Hashes, old: pa.Table) -> Hashes:
    """Of groups from which a value went that was not beaten by the one that counts (`old`, sorted by hash)."""
    went = np.flatnonzero(changed[WEIGHT].to_numpy() < 0)
    wanted, known = hashes[went], old[HASH].to_numpy()
    if not len(went) or not len(known):
        return distinct(wanted)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    alone = np.searchsorted(known, wanted, "right") - np.searchsorted(known, wanted) == 1
    value, counts = changed[VALUE].take(went), old[told.name].take(places)
    beaten = (pc.greater if told.how == "min" else pc.less)(value, counts).fill_null(False).to_numpy()
    there = ~old[GONE].to_numpy()[places]
    return distinct(wanted[~(alone & beaten & there)])


def _without(old: pa.Table, name: str, hashes: Hashes) -> pa.Table:
    """The rows of these groups without that number, which is computed anew."""
    if not len(hashes):
        return old
    mask = pa.array(np.isin(old[HASH].to_numpy(), hashes))
    place = old.schema.get_field_index(name)
    return old.set_column(place, old.schema.field(place), pc.if_else(mask, pa.scalar(None, old[name].type), old[name]))


def _there(rows: pa.Table) -> pa.Table:
    """The values that are there, of those that came and went."""
    rows = netted(rows) if rows.num_rows else rows
    return rows.filter(pa.array(rows[WEIGHT].to_numpy() > 0))


def _but(rows: pa.Table, places: Ints) -> pa.Table:
    """All but those at these places."""
    if not len(places):
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[places] = False
    return rows.filter(pa.array(left))


def _is_zero(column: pa.ChunkedArray) -> Mask:
    numbers = integers(column)
    if numbers is not None:
        return np.equal(numbers, 0)
    zero: Mask = pc.equal(column, pa.scalar(0).cast(column.type)).to_numpy()
    return zero


def _gone(rows: pa.Table) -> pa.Table:
    place, version = rows.schema.get_field_index(GONE), rows.schema.get_field_index(_VERSION)
    rows = rows.set_column(place, GONE, pa.array(np.ones(rows.num_rows, np.bool_)))
    return rows.set_column(version, _VERSION, pc.add(rows[_VERSION], 1))


def _int64(names: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(name, pa.int64()) for name in names]
