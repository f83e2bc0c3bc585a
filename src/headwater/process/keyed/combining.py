"""What becomes of rows of an arrangement when chunks merge: nothing, sums, or the newest of each key.

plain     rows are rows; nothing is combined
summed    rows that agree in all other columns stand for one with the sums of the additive columns; all zero: gone
newest    of a key's rows the last by the order of some columns counts; one that is `_gone` says that there is none
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process import duck
from headwater.process.keyed.bykey import Mask, by_key, taken
from headwater.process.keyed.fixed import Ints, typed
from headwater.process.keyed.reducing import reduced

HASH = "_hash"
GONE = "_gone"

_SMALLEST = -(2**63)

Elsewhere = Callable[[Hashes], Mask]
"""Which of these hashes have rows outside of what is being merged."""


@dataclass(frozen=True)
class Shape:
    """What an arrangement holds: `schema` without the hash, `key` to find rows by, and how rows are combined.

    With `additive` columns, rows are summed. `compact` says that this is worth doing whenever chunks merge; without it
    they are only when something is to be cancelled, which saves the work where rows hardly ever repeat.
    With `newest`, the columns that say which of a key's rows is the newer one, only that one counts; the schema then
    has a column `_gone`. Two rows of a key never agree in all of `newest` and `_gone`.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    additive: tuple[str, ...] = ()
    compact: bool = False
    newest: tuple[str, ...] = ()

    @cached_property
    def stored(self) -> pa.Schema:
        return pa.schema([pa.field(HASH, pa.uint64()), *self.schema])

    def combined(self, rows: pa.Table, elsewhere: Elsewhere) -> pa.Table:
        """Rows from several chunks (in the stored schema) as they are to be kept, sorted by hash."""
        if self.newest:
            newest = self.newest_of(rows)
            return newest.filter(pa.array(~self._forgettable(newest, elsewhere)))
        if self.additive and (self.compact or _negative(rows, self.additive)):
            rows = self._summed(rows)
        return taken(rows, np.argsort(rows[HASH].to_numpy(), kind="stable"))

    def newest_of(self, rows: pa.Table) -> pa.Table:
        """Each key once, by its newest row, be it `_gone` or not; sorted by hash."""
        within = [*(ints(rows, name) for name in self.newest), rows[GONE].to_numpy()]
        return taken(rows, by_key(rows, self.key, rows[HASH].to_numpy(), within).last)

    def _forgettable(self, newest: pa.Table, elsewhere: Elsewhere) -> Mask:
        """A row that says "there is none" may go once no other row of its key is left for it to speak of."""
        gone = newest[GONE].to_numpy()
        forgettable = np.zeros(len(gone), np.bool_)
        forgettable[gone] = ~elsewhere(newest[HASH].to_numpy()[gone]) if gone.any() else False
        return forgettable

    def _summed(self, rows: pa.Table) -> pa.Table:
        own = [name for name in self.stored.names if name not in self.additive]
        if {HASH, *self.key} == set(own):
            return self._by_key(rows)
        few = reduced(rows, own, [(name, "sum") for name in self.additive])
        if few is not None:
            left = np.any([few[name].to_numpy() != 0 for name in self.additive], axis=0)
            return few.filter(pa.array(left)).select(self.stored.names)
        sums = ", ".join(f"sum({duck.quoted(name)})::BIGINT AS {duck.quoted(name)}" for name in self.additive)
        some = " OR ".join(f"sum({duck.quoted(name)}) <> 0" for name in self.additive)
        answer = duck.run(f"SELECT {duck.columns(own)}, {sums} FROM rows GROUP BY ALL HAVING {some}", rows=rows)
        return typed(answer, self.stored)

    def _by_key(self, rows: pa.Table) -> pa.Table:
        """Summed, where the key is all that rows agree in."""
        by = by_key(rows, self.key, rows[HASH].to_numpy(), ())
        sums = {name: by.sums(rows[name].to_numpy()) for name in self.additive}
        left = np.any([numbers != 0 for numbers in sums.values()], axis=0)
        found = taken(rows, by.first[left])
        for name, numbers in sums.items():
            found = found.set_column(found.schema.get_field_index(name), name, pa.array(numbers[left]))
        return found


def ints(rows: pa.Table, name: str) -> Ints:
    """A column of whole numbers or times as numbers; null is the smallest."""
    column = rows[name].cast(pa.int64())
    numbers: Ints = (column.fill_null(_SMALLEST) if column.null_count else column).to_numpy()
    return numbers


def _negative(rows: pa.Table, additive: tuple[str, ...]) -> bool:
    return any(bool((rows[name].to_numpy() < 0).any()) for name in additive)
