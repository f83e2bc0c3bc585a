"""The first rows of each key, of rows that are only added: what is not among them now never will be, and is not kept.

State: `rows`; of one row a key the newest counts, of several each that has not been taken away again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes, distinct
from headwater.process import duck
from headwater.process.keyed.arrangement import GONE, Arrangement, Shape
from headwater.process.keyed.bykey import hashes_of, taken
from headwater.process.keyed.fixed import Ints, typed
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.weighing import present, weighed
from headwater.records import WEIGHT

Order = tuple[tuple[str, tuple[str, ...]], ...]
"""Of each item of ORDER BY its text, with the direction, and the columns in it."""

_PLACE = "_place"
_VERSION = "_version"


@dataclass(frozen=True)
class Top:
    """Of the rows that agree in `key` the `most` first by `order`, which leaves no two rows tied that can be told
    apart: a list for ORDER BY, each with the columns that it speaks of. The answer has the column `rank`, from 1 on."""

    input: pa.Schema
    key: tuple[str, ...]
    order: Order
    most: int
    rank: str

    revision = 1
    netted = True

    @property
    def found_by(self) -> FoundBy | None:
        return (self.key,)

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        rows = state.arrangement("rows", self._shape)
        came = typed(changes.get(0, self.input.empty_table()), self.input)
        hashes = hashes_of(came, self.key)
        if self.most == 1:
            newest = rows.newest(distinct(hashes))
            old, versions = newest.select(self._columns.names), newest[_VERSION].to_numpy()
        else:
            old, versions = present(rows.gather(distinct(hashes))), np.zeros(0, np.int64)
        came = present(came) if (came[WEIGHT].to_numpy() > 1).any() else came.drop_columns([WEIGHT])
        whole = pa.concat_tables([old, came])
        now = self._ranks(whole)
        was = np.zeros(whole.num_rows, np.int64)
        was[: old.num_rows] = 1 if self.most == 1 else self._ranks(old)
        left, entered = np.flatnonzero((was > 0) & (now == 0)), np.flatnonzero((was == 0) & (now > 0))
        if self.most == 1:
            self._replace(rows, whole, entered, versions, old)
        else:
            rows.add(weighed(self._columns, [(whole.take(left), -1), (whole.take(entered), 1)]))
        moved = was != now
        gone, here = np.flatnonzero(moved & (was > 0)), np.flatnonzero(moved & (now > 0))
        parts = [(self._shown(whole, gone, was), -1), (self._shown(whole, here, now), 1)]
        return Answer(weighed(self._answered, parts))

    def _ranks(self, rows: pa.Table) -> Ints:
        """The rank of each row, 0 of those that are not among the first."""
        ranks: Ints = np.zeros(rows.num_rows, np.int64)
        places = np.arange(rows.num_rows)
        if self._cheap and len(self._cheap) < len(self.order):  # texts are compared only where numbers leave it open
            places = self._by_numbers(rows, ranks)
        if len(places):
            found = self._first(taken(rows, places), places, self.order, f"row_number() <= {self.most}")
            ranks[found[_PLACE].to_numpy()] = found["number"].to_numpy()
        return ranks

    def _by_numbers(self, rows: pa.Table, ranks: Ints) -> Ints:
        """Ranks of keys in which numbers and times leave nothing open; answers the places of the first of others."""
        found = self._first(rows, np.arange(rows.num_rows), self._cheap, f"rank() <= {self.most}")
        places: Ints = found[_PLACE].to_numpy()
        number: Ints = found["number"].to_numpy()
        ranks[places] = number
        tied = number != found["rank"].to_numpy()
        if not tied.any():
            return places[:0]
        keys = hashes_of(taken(rows.select(list(self.key)), places), self.key)
        open_yet: Ints = places[np.isin(keys, keys[tied])]
        ranks[open_yet] = 0
        return open_yet

    def _first(self, rows: pa.Table, places: Ints, order: Order, which: str) -> pa.Table:
        names = list(dict.fromkeys([*self.key, *(name for _, needs in order for name in needs)]))
        over = f"OVER ({window(self.key, order)})"
        return duck.run(
            f"SELECT {_PLACE}, rank() {over} AS rank, row_number() {over} AS number FROM numbered"
            f" QUALIFY {which.replace('()', f'() {over}')}",
            numbered=rows.select(names).append_column(_PLACE, pa.array(places)),
        )

    @property
    def _cheap(self) -> Order:
        return cheap(self.order, self.input)

    def _replace(self, rows: Arrangement, whole: pa.Table, entered: Ints, versions: Ints, old: pa.Table) -> None:
        """The one row of a key takes the place of the one before."""
        fresh = whole.take(entered)
        hashes = hashes_of(fresh, self.key)
        version = np.ones(len(entered), np.int64)
        if old.num_rows:
            known, order = _sorted(hashes_of(old, self.key))
            places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            there = known[places] == hashes
            version = np.where(there, versions[order][places] + 1, 1)
        fresh = fresh.append_column(_VERSION, pa.array(version))
        fresh = fresh.append_column(GONE, pa.array(np.zeros(len(entered), np.bool_)))
        rows.add(fresh, hashes)

    def _shown(self, whole: pa.Table, places: Ints, ranks: Ints) -> pa.Table:
        return whole.take(places).append_column(self.rank, pa.array(ranks[places]))

    @property
    def _columns(self) -> pa.Schema:
        return pa.schema([field for field in self.input if field.name != WEIGHT])

    @property
    def _answered(self) -> pa.Schema:
        return self._columns.append(pa.field(self.rank, pa.int64()))

    @property
    def _shape(self) -> Shape:
        if self.most == 1:
            kept = [pa.field(_VERSION, pa.int64()), pa.field(GONE, pa.bool_())]
            return Shape(pa.schema([*self._columns, *kept]), self.key, newest=(_VERSION,))
        return Shape(self.input, self.key, (WEIGHT,))


def cheap(order: Order, schema: pa.Schema) -> Order:
    """As much of an order, from its beginning, as is of numbers and times."""

    def is_cheap(needs: tuple[str, ...]) -> bool:
        return all(pa.types.is_primitive(schema.field(name).type) for name in needs)

    return tuple(itertools.takewhile(lambda each: is_cheap(each[1]), order))


def window(key: tuple[str, ...], order: Order) -> str:
    by = f"ORDER BY {', '.join(text for text, _ in order)}"
    return f"PARTITION BY {duck.columns(key)} {by}" if key else by


def _sorted(hashes: Hashes) -> tuple[Hashes, Ints]:
    order = np.argsort(hashes)
    return hashes[order], order
