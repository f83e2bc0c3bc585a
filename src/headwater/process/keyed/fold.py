"""A user's own reducer: what is known of a key, and its new records one after the other, give what is known then.

State: `rows`, the folded row of each key, and with `retain` the queue `expiry`.

With `retain` (µs) a key is forgotten in two steps, both said by event time alone, so that it does not matter where
batches end. `newest` is the greatest event time of its records since it began:

    watermark > newest + retain       its row leaves the view; the state stays, out of sight
    watermark > newest + 2 retain     the state is dropped
    a record after newest + retain    the fold begins again from `initial`

A record that is late by up to `retain` may still meet its key in the second `retain`, and finds what it would have
found in one batch with the others. Records later than that do not reach operators: the source puts them aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headwater.errors import BadSchema
from headwater.log.keyhash import distinct, key_hash
from headwater.process.keyed.arrangement import GONE, HASH, Arrangement, Shape
from headwater.process.keyed.bykey import Mask, by_key, matched
from headwater.process.keyed.combining import ints
from headwater.process.keyed.current import changes as changes_shown
from headwater.process.keyed.current import where, with_column, write
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.fitting import Fitting, Unfit
from headwater.process.keyed.fixed import Ints
from headwater.process.keyed.folding import Folded, Folding
from headwater.process.keyed.generated import Row, rows_maker
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.records import positions, user_columns
from headwater.process.keyed.values import python_columns
from headwater.process.keyed.weighing import weighed
from headwater.records import OFFSET, PARTITION, WEIGHT

VERSION = "_version"
NEWEST = "_newest"
SHOWN = "_shown"


@dataclass(frozen=True)
class Fold:
    """`function(state, record) -> state` for each record of a key in the order of the log, from `initial` on.

    With by="arrow" it is `function(state, records)`, called once a batch and key with a table; it must give the same
    however a key's records are cut into batches. State and record are dicts, and copies: changing them does no harm.
    What is returned has exactly `columns`. The answer has the key and these columns.

    A function that raises, or returns something else, stops the pipeline (`FunctionFailed`) or, with on_error="dead",
    sends the record (or the call's records) to the dead letters and leaves what is known of the key as it was.
    The log orders the records of a partition: a key's records must stand in one, as they do if it is the topic's key.
    """

    input: pa.Schema
    key: tuple[str, ...]
    columns: pa.Schema
    initial: Mapping[str, Any]
    function: Callable[..., Any]
    by: Literal["record", "arrow"] = "record"
    on_error: Literal["stop", "dead"] = "stop"
    time: str | None = None
    retain: int | None = None
    pipeline: str = ""
    topic: str = ""

    revision = 1

    @property
    def found_by(self) -> FoundBy | None:
        return (self.key,) if self.retain is None else None

    def __post_init__(self) -> None:
        for wrong, what, do in self._objections():
            if wrong:
                raise BadSchema(what=f"fold of {self.pipeline!r}: {what}", do=do)
        try:
            self._initial(Fitting(self.columns))
        except Unfit as error:
            raise BadSchema(what=f"fold of {self.pipeline!r}: initial: {error}", do="Correct initial=") from None

    def _objections(self) -> list[tuple[bool, str, str]]:
        arriving, columns = self.input.names, self.columns.names
        missing = [name for name in (*self.key, PARTITION, OFFSET) if name not in arriving]
        odd = [name for name in columns if name.startswith("_") or name in self.key]
        strange = [name for name in self.initial if name not in columns]
        return [
            (bool(missing), f"no column {missing[:1]} arrives", f"Columns: {arriving}"),
            (WEIGHT in arriving, "a table has no records to fold, only changes", "Fold a stream"),
            (not columns, "no columns", "Name at least one column of the state"),
            (bool(odd), f"a column of the state cannot be called {odd[:1]}", "Rename it"),
            (bool(strange), f"initial has {strange[:1]}, which is no column", f"Columns: {columns}"),
            (self.retain is not None and self.time not in arriving, "retain needs the event time", "Say time='...'"),
        ]

    def _initial(self, fitting: Fitting) -> Row:
        return fitting.fitted({name: self.initial.get(name) for name in self.columns.names})

    # --- a batch ---

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        rows = state.arrangement("rows", self._shape)
        expiry = Expiry(state) if self.retain is not None else None
        mark = NEVER if watermark is None else watermark
        gone, come, dead = self._take(rows, expiry, changes.get(0, self.input.empty_table()), mark)
        left = self._expire(rows, expiry, mark) if expiry is not None and watermark is not None else gone.slice(0, 0)
        return Answer(weighed(self._output, [(gone, -1), (left, -1), (come, 1)]), dead)

    def _take(
        self, rows: Arrangement, expiry: Expiry | None, records: pa.Table, mark: int
    ) -> tuple[pa.Table, pa.Table, pa.Table | None]:
        records = records.combine_chunks()
        hashes, position = key_hash([records.column(name) for name in self.key]), positions(records)
        found = by_key(records, self.key, hashes, [position])
        first = found.order[found.starts]
        keys, hashes = records.select(list(self.key)).take(first), hashes[first]
        old = rows.newest(distinct(hashes))
        places, known = matched(keys, hashes, old, old[HASH].to_numpy(), self.key)
        before = _at(old, places, known)
        was_there = known & ~before[GONE].to_numpy()

        folded = self._folded(records.take(found.order), position[found.order], found.starts, keys, before, was_there)
        now = self._rows_now(keys, hashes, folded, before, known)
        is_there = now[SHOWN].to_numpy()
        was_shown, is_shown = was_there & before[SHOWN].to_numpy(), is_there
        if expiry is not None and self.retain is not None:
            newest = ints(now, NEWEST)
            is_there = ~_past(newest, 2 * self.retain, mark)
            is_shown = ~_past(newest, self.retain, mark)
            now = with_column(with_column(now, SHOWN, is_shown), GONE, ~is_there)
            begins = ~was_there | (is_shown & ~was_shown) | (ints(before, NEWEST) == NEVER)
            self._enter(expiry, now, folded.changed & is_there & begins)
        write(rows, now, folded.changed & (is_there | was_there))
        left, come = changes_shown(self._output, before, folded.changed & was_shown, now, folded.changed & is_shown)
        return left, come, folded.dead

    def _folded(
        self, records: pa.Table, position: Ints, starts: Ints, keys: pa.Table, before: pa.Table, was_there: Mask
    ) -> Folded:
        fitting = Fitting(self.columns)
        names = self.columns.names
        initial = self._initial(fitting)
        states: list[Row | None] = [None] * len(was_there)
        there = np.flatnonzero(was_there)
        known = rows_maker(tuple(names))(zip(*python_columns(before.select(names).take(there)), strict=True))
        for place, row in zip(there.tolist(), known, strict=True):
            states[place] = row
        return Folding(
            function=self.function,
            fitting=fitting,
            initial=initial,
            by=self.by,
            on_error=self.on_error,
            retain=self.retain,
            pipeline=self.pipeline,
            topic=self.topic,
        ).run(
            records=records.select(user_columns(self.input).names),
            position=position.tolist(),
            starts=starts.tolist(),
            keys=keys,
            times=ints(records, self.time).tolist() if self.time and self.retain is not None else None,
            states=states,
            newest=np.where(was_there, ints(before, NEWEST), NEVER).tolist(),
        )

    def _rows_now(self, keys: pa.Table, hashes: Any, folded: Folded, before: pa.Table, known: Mask) -> pa.Table:
        now = keys.add_column(0, HASH, pa.array(hashes))
        for field in self.columns:
            values = [row[field.name] if row is not None else None for row in folded.states]
            now = now.append_column(field, pa.array(values, field.type))
        count = len(hashes)
        version = np.where(known, ints(before, VERSION), 0) + 1
        now = now.append_column(VERSION, pa.array(version)).append_column(NEWEST, pa.array(folded.newest, pa.int64()))
        there = np.ones(count, np.bool_)
        return now.append_column(SHOWN, pa.array(there)).append_column(GONE, pa.array(~there))

    def _expire(self, rows: Arrangement, expiry: Expiry, mark: int) -> pa.Table:
        """The rows that leave the view although no record has come for their keys."""
        assert self.retain is not None
        due = rows.newest(expiry.take(mark))
        newest, was_shown, there = ints(due, NEWEST), due[SHOWN].to_numpy(), ~due[GONE].to_numpy()
        drops = there & _past(newest, 2 * self.retain, mark)
        hides = there & ~drops & was_shown & _past(newest, self.retain, mark)
        now = with_column(with_column(due, SHOWN, was_shown & ~hides & ~drops), GONE, ~there | drops)
        now = with_column(now, VERSION, ints(due, VERSION) + 1)
        self._enter(expiry, now, there & ~drops)
        write(rows, now, drops | hides)
        return where(due, (drops | hides) & was_shown)

    def _enter(self, expiry: Expiry, rows: pa.Table, mask: Mask) -> None:
        assert self.retain is not None
        newest, is_shown = ints(rows, NEWEST), rows[SHOWN].to_numpy()
        chosen = np.flatnonzero(mask & (newest != NEVER))
        due = np.where(is_shown, after(newest, self.retain), after(newest, 2 * self.retain))
        if len(chosen):
            expiry.enter(rows[HASH].to_numpy()[chosen], due[chosen])

    @property
    def _output(self) -> pa.Schema:
        return pa.schema([*(self.input.field(name) for name in self.key), *self.columns])

    @property
    def _shape(self) -> Shape:
        own = [(VERSION, pa.int64()), (NEWEST, pa.int64()), (SHOWN, pa.bool_()), (GONE, pa.bool_())]
        schema = pa.schema([*self._output, *(pa.field(name, kind) for name, kind in own)])
        return Shape(schema, self.key, newest=(VERSION,))


def _at(old: pa.Table, places: Ints, known: Mask) -> pa.Table:
    """For each key the row it had; where there was none, a row of nulls that is gone."""
    found = old.take(pa.array(places, mask=~known))
    gone = np.where(known, found[GONE].fill_null(True).to_numpy(), True)
    return with_column(with_column(found, GONE, gone), SHOWN, found[SHOWN].fill_null(False).to_numpy())


def _past(newest: Ints, span: int, mark: int) -> Mask:
    past: Mask = (newest != NEVER) & (after(newest, span) < mark)
    return past
