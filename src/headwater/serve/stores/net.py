"""What changes come to: equal rows summed, so that what came and went in between is not written at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import key_hash, spread
from headwater.records import WEIGHT
from headwater.serve.stores.plainvalues import plain, row_numbers

_PLACE = "_place"


@dataclass(frozen=True)
class Net:
    """`here` are rows to be there `here_times` more often, `gone` rows to be there `gone_times` less often."""

    here: pa.Table
    here_times: list[int]
    gone: pa.Table
    gone_times: list[int]


def net(changes: pa.Table, schema: pa.Schema) -> Net:
    """By whole rows: for bags, and for stores that find a row by all its values."""
    rows = changes.select(schema.names).combine_chunks()
    weights, places = _summed(_plain(rows), changes[WEIGHT])
    here, gone = weights > 0, weights < 0
    return Net(
        rows.take(pa.array(places[here])),
        weights[here].tolist(),
        rows.take(pa.array(places[gone])),
        (-weights[gone]).tolist(),
    )


def net_by_key(changes: pa.Table, schema: pa.Schema, key: tuple[str, ...]) -> Net:
    """One row a key at most: `here` are the rows that keys have now, `gone` one of each key that has none any more."""
    rows = changes.select(schema.names).combine_chunks()
    values = _plain(rows)
    weights, places = _summed(values, changes[WEIGHT])
    weights, places = weights[weights != 0], places[weights != 0]
    candidates = pa.table({name: values[name] for name in key}).take(pa.array(places))
    marked = candidates.append_column("_here", pa.array(np.where(weights > 0, places, -1)))
    marked = marked.append_column(_PLACE, pa.array(places))
    by_key = marked.group_by(list(key), use_threads=False).aggregate([("_here", "max"), (_PLACE, "max")])
    found = by_key["_here_max"].to_numpy()
    gone = by_key[f"{_PLACE}_max"].to_numpy()[found < 0]
    here = found[found >= 0]
    return Net(
        rows.take(pa.array(here, pa.int64())), [1] * len(here), rows.take(pa.array(gone, pa.int64())), [1] * len(gone)
    )


def repeated(rows: pa.Table, times: list[int]) -> pa.Table:
    """Each row as often as it is there."""
    if all(some == 1 for some in times):
        return rows
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times)))


def buckets(rows: pa.Table, ways: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A number below `ways` for each row; equal rows have the same."""
    return spread(key_hash(list(_plain(rows).values())), ways)


def numbers(rows: pa.Table) -> pa.Array:
    """A number for each row, by which a bag of rows is searched: equal rows have the same."""
    found = row_numbers(pa.table(_plain(rows))) if rows.num_rows else []
    return pa.array(found, pa.int64())


def _plain(rows: pa.Table) -> dict[str, pa.Array]:
    """Columns that can be grouped and hashed: nested values as text."""
    return {field.name: plain(rows[field.name].combine_chunks()) for field in rows.schema}


def _summed(values: dict[str, pa.Array], weights: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of weights of each different row, and where one such row stands.

    Equal rows have equal hashes; so rows whose hash no other has, most of them, need not be compared.
    """
    each = weights.to_numpy()
    hashes = key_hash(list(values.values())) if len(each) else np.array([], np.uint64)
    order = np.argsort(hashes, kind="stable")
    same = hashes[order][1:] == hashes[order][:-1]
    shared = np.zeros(len(each), bool)
    shared[order[1:][same]] = shared[order[:-1][same]] = True
    alone, places = np.flatnonzero(~shared), np.flatnonzero(shared)
    if not len(places):
        return each, alone
    numbered = pa.table({**values, WEIGHT: weights, _PLACE: pa.array(np.arange(len(each)))}).take(pa.array(places))
    summed = numbered.group_by(list(values), use_threads=False).aggregate([(WEIGHT, "sum"), (_PLACE, "max")])
    return (
        np.concatenate([each[alone], summed[f"{WEIGHT}_sum"].to_numpy()]),
        np.concatenate([alone, summed[f"{_PLACE}_max"].to_numpy()]),
    )
