"""Rows brought together by key, exactly: by the hash, and by the key itself where two keys have the same hash.

Whole columns at a time. That two keys share a hash is rare enough to take the slow way then, and not so rare (an
adversary can make it happen) that the answer might be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.keyhash import Hashes, key_hash
from headwater.process import duck
from headwater.process.keyed.fixed import Ints, Words, words
from headwater.records import is_key_type

Mask = npt.NDArray[np.bool_]


def hashes_of(rows: pa.Table, key: Sequence[str]) -> Hashes:
    """The hash of each row's key; without key columns all rows are together."""
    return key_hash([_hashable(rows.column(name)) for name in key]) if key else np.zeros(rows.num_rows, np.uint64)


def _hashable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A type that keys of topics may not have, but groups may (a list, a decimal), by its text, in which a zero has no
    sign: what is equal must hash alike."""
    if is_key_type(column.type):
        return column
    return duck.run("SELECT replace(x::VARCHAR, '-0.0', '0.0') AS x FROM rows", rows=pa.table({"x": column}))["x"]


@dataclass(frozen=True)
class ByKey:
    order: Ints
    """The rows, those of one key together, ascending by hash, within a key by what was asked for."""
    starts: Ints
    """Where each key begins in `order`."""

    @property
    def first(self) -> Ints:
        """The first row of each key."""
        return self.order[self.starts]

    @property
    def last(self) -> Ints:
        """The last row of each key."""
        ends = np.append(self.starts[1:], len(self.order)) if len(self.order) else self.starts
        return self.order[ends - 1]

    def sums(self, numbers: Ints) -> Ints:
        """Those of each key's rows."""
        found: Ints = np.add.reduceat(numbers[self.order], self.starts) if len(self.order) else numbers
        return found


def by_key(rows: pa.Table, key: Sequence[str], hashes: Hashes, within: Sequence[npt.NDArray[Any]]) -> ByKey:
    """`within` are the columns that order a key's rows, the first one first; they must tell any two rows apart. With
    none, rows of a key are in any order."""
    order = np.argsort(hashes)
    ordered = hashes[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        repeated = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        if within:
            among = order[repeated]
            order[repeated] = among[np.lexsort((*(column[among] for column in reversed(within)), ordered[repeated]))]
        pairs = np.flatnonzero(same)
        equal = same_at(rows, order[pairs], rows, order[pairs + 1], [(name, name) for name in key])
        if not equal.all():
            astray = repeated[np.isin(ordered[repeated], ordered[pairs[~equal]])]
            among = order[astray]
            ranks = _ranks(taken(rows, among), key)
            chosen = np.lexsort((*(column[among] for column in reversed(within)), ranks, ordered[astray]))
            order[astray], ranks = among[chosen], ranks[chosen]
            apart = (astray[1:] == astray[:-1] + 1) & (ranks[1:] != ranks[:-1])
            same[astray[:-1][apart]] = False
    starts = np.flatnonzero(np.insert(~same, 0, True)) if len(order) else np.zeros(0, np.int64)
    return ByKey(order, starts)


def matched(
    rows: pa.Table, hashes: Hashes, among: pa.Table, among_hashes: Hashes, key: Sequence[str]
) -> tuple[Ints, Mask]:
    """For each row the place of the row with its key in `among`, and whether there is one.

    Both sides are sorted by hash and have each key once. Where there is none, the place is 0.
    """
    if not len(among_hashes):
        return np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(among_hashes, hashes), len(among_hashes) - 1)
    found = among_hashes[places] == hashes
    pairs = np.flatnonzero(found)
    if (
        (hashes[1:] > hashes[:-1]).all()
        and (among_hashes[1:] > among_hashes[:-1]).all()
        and same_at(rows, pairs, among, places[pairs], [(name, name) for name in key]).all()
    ):
        return np.where(found, places, 0), found
    on = " AND ".join(f"a.{duck.quoted(name)} IS NOT DISTINCT FROM b.{duck.quoted(name)}" for name in key)
    place = duck.run(
        f"SELECT b.row FROM a LEFT JOIN b ON {on} ORDER BY a.row",
        a=_numbered(rows, key),
        b=_numbered(among, key),
    )["row"]
    return place.fill_null(0).to_numpy(), place.is_valid().to_numpy()


def taken(rows: pa.Table, places: Ints) -> pa.Table:
    """The rows at these places; all of them in their order is the table as it is, which happens often and is free."""
    if len(places) == rows.num_rows and (places == np.arange(len(places))).all():
        return rows
    return rows.take(places)


def same_at(a: pa.Table, at_a: Ints, b: pa.Table, at_b: Ints, keys: Sequence[tuple[str, str]]) -> Mask:
    """Pair by pair of places, as `same_keys`, by columns of `a` and `b` that may have other names."""
    same = np.ones(len(at_a), np.bool_)
    for own, its in keys:
        numbers = _whole_numbers(a[own], b[its])
        if numbers is not None:
            same &= numbers[0][at_a] == numbers[1][at_b]
        else:
            both = [rows.select([name]).rename_columns(["key"]) for rows, name in ((a, own), (b, its))]
            same &= same_keys(taken(both[0], at_a), taken(both[1], at_b), ["key"])
    return same


def _whole_numbers(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[Words, Words] | None:
    """If they are equal where these are: times of other units are not."""
    if a.type != b.type and not (pa.types.is_signed_integer(a.type) and pa.types.is_signed_integer(b.type)):
        return None
    left, right = words(a), words(b)
    if left is None or right is None or left.dtype.kind != "i" or right.dtype.kind != "i":
        return None
    return left, right


def same_keys(a: pa.Table, b: pa.Table, key: Sequence[str]) -> Mask:
    """Row by row, as keys are compared: null is null, NaN is NaN, -0.0 is 0.0."""
    same = np.ones(a.num_rows, np.bool_)
    for name in key:
        left, right = a[name], b[name]
        if pa.types.is_nested(left.type):
            same &= _asked("a.x IS NOT DISTINCT FROM b.x", left, right)
            continue
        equal = pc.equal(left, right)
        if pa.types.is_floating(left.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
        same &= _with_nulls(equal, left, right)
    return same


def same_rows(a: pa.Table, b: pa.Table) -> Mask:
    """Row by row, as bytes are compared: what differs in a sign of zero is not the same."""
    same = np.ones(a.num_rows, np.bool_)
    for name in a.schema.names:
        left, right = a[name], b[name]
        if pa.types.is_nested(left.type):
            same &= _asked(
                "a.x IS NOT DISTINCT FROM b.x AND a.x::VARCHAR IS NOT DISTINCT FROM b.x::VARCHAR", left, right
            )
        elif pa.types.is_floating(left.type):
            same &= _bits(left) == _bits(right)
            same &= left.is_null().to_numpy() == right.is_null().to_numpy()
        else:
            same &= _with_nulls(pc.equal(left, right), left, right)
    return same


def _asked(whether: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    """Of every pair, as `a.x` and `b.x`."""
    sql = f"SELECT {whether} AS same FROM a POSITIONAL JOIN b"
    found: Mask = duck.run(sql, a=pa.table({"x": left}), b=pa.table({"x": right}))["same"].to_numpy()
    return found


def _with_nulls(equal: pa.ChunkedArray, left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    if equal.null_count:
        equal = pc.or_(equal.fill_null(False), pc.and_(left.is_null(), right.is_null()))
    found: Mask = equal.to_numpy()
    return found


def _bits(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    floats: npt.NDArray[Any] = column.fill_null(0.0).to_numpy()
    return floats.view(np.dtype(f"i{floats.dtype.itemsize}"))


def _ranks(rows: pa.Table, key: Sequence[str]) -> Ints:
    ranks: Ints = duck.run(
        f"SELECT dense_rank() OVER (ORDER BY {duck.columns(list(key))})::BIGINT AS rank FROM a ORDER BY row",
        a=_numbered(rows, key),
    )["rank"].to_numpy()
    return ranks


def _numbered(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.select(list(key)).append_column("row", pa.array(np.arange(rows.num_rows)))
