"""Distinct counts: of each value of a group how many rows have it, for each count by itself; it counts while that is
more than none.

What comes and what was known of the same values are brought together by one number, whose upper half is the group's
hash: so a group's values lie side by side, in the group's bucket, and are added up without grouping again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process import duck
from headwater.process.keyed.bykey import Mask, by_key, hashes_of, same_keys, taken
from headwater.process.keyed.combining import HASH

VALUE = "_value"
_UPPER = np.uint64(0xFFFF_FFFF_0000_0000)


@dataclass(frozen=True)
class Counted:
    changed: pa.Table
    """Each value for which something has changed, with how many rows more have it; sorted by hash."""
    hashes: Hashes
    began: Mask
    """Those of which nothing was known."""
    moved: pa.Table
    """By how much each distinct count of each group goes up or down."""


def value_hashes(rows: pa.Table, keys: Sequence[str]) -> Hashes:
    """Values of a group apart, and all of them in the group's bucket, which the upper half of a hash decides."""
    return hashes_of(rows, keys) & _UPPER | hashes_of(rows, (VALUE,)) & ~_UPPER


def counted(came: pa.Table, hashes: Hashes, before: pa.Table, keys: Sequence[str], counts: Sequence[str]) -> Counted:
    """`came` are rows (keys, `_value`, counts), `before` those that are known of the same values, with `_hash`."""
    rows = pa.concat_tables([came, before.select(came.schema.names)]).combine_chunks()
    all_hashes = np.concatenate([hashes, before[HASH].to_numpy()])
    by = by_key(rows, (*keys, VALUE), all_hashes, ())
    known = np.arange(rows.num_rows) >= came.num_rows
    more, moved = {}, {}
    for name in counts:
        numbers = rows[name].to_numpy()
        had = by.sums(np.where(known, numbers, 0))
        more[name] = by.sums(numbers) - had
        moved[name] = (had + more[name] > 0).astype(np.int64) - (had > 0)
    changed = np.any([numbers != 0 for numbers in more.values()], axis=0)
    first = by.first[changed]
    values = taken(rows.select([*keys, VALUE]), first)
    more = {name: pa.array(numbers[changed]) for name, numbers in more.items()}
    began = by.sums(known.astype(np.int64))[changed] == 0
    told = values.select(keys)
    for name, numbers in moved.items():
        told = told.append_column(name, pa.array(numbers[changed]))
    columns = {**dict(zip(values.schema.names, values.columns, strict=True)), **more}
    return Counted(
        pa.table(columns).select(came.schema.names),
        all_hashes[first],
        began,
        _by_group(told, all_hashes[first] & _UPPER, keys, counts),
    )


def _by_group(rows: pa.Table, groups: Hashes, keys: Sequence[str], counts: Sequence[str]) -> pa.Table:
    """Added up; `groups` are their hashes, rows with the same ones being side by side."""
    another = groups[1:] != groups[:-1]
    if not (another | same_keys(rows.slice(1), rows.slice(0, rows.num_rows - 1), keys)).all():
        sums = ", ".join(f"sum({duck.quoted(name)})::BIGINT AS {duck.quoted(name)}" for name in counts)
        return duck.run(f"SELECT {duck.columns(list(keys))}, {sums} FROM rows GROUP BY ALL", rows=rows)
    starts = np.flatnonzero(np.insert(another, 0, True)) if rows.num_rows else np.zeros(0, np.int64)
    columns = {name: rows[name].take(pa.array(starts)) for name in keys}
    for name in counts:
        numbers = rows[name].to_numpy()
        columns[name] = pa.array(np.add.reduceat(numbers, starts) if len(starts) else numbers)
    return pa.table(columns)
