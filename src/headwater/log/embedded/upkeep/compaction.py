"""Compaction of tables: below a horizon only what counts is left.

    weighted   records that are equal but for their weight become one with the sum; a sum of zero is nothing
    upsert     of each key the newest record; a tombstone goes too, once it is older than the topic's `tombstone_s`

What is left keeps its offset (of equal records, the last one's). The horizon is the end of a chunk and never passes the
position of a registered consumer, nor what is younger than the topic's `history_s`; whoever starts later inside of it
is told (`Compacted`) and begins at 0.
However large the partition, a few megabytes of it are in memory at a time (`folding`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.rows import KnownTopic, Swapped, chunk_bounds, extents_of, select_chunks
from headwater.log.embedded.upkeep.folding import Folding
from headwater.log.embedded.upkeep.limits import unread
from headwater.log.embedded.upkeep.rewriting import Rewriting, slices
from headwater.log.embedded.upkeep.swap import swap_in
from headwater.records import DELETED, OFFSET, WEIGHT

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


def compact(log: EmbeddedLog, topic: KnownTopic) -> dict[int, int]:
    """The new horizon of every partition that was compacted. Streams are never: their records are facts."""
    if topic.spec.kind != "table":
        return {}
    horizons = {}
    for partition in range(topic.spec.partitions):
        horizon = _compact_partition(log, topic, partition)
        if horizon is not None:
            horizons[partition] = horizon
    return horizons


def _compact_partition(log: EmbeddedLog, topic: KnownTopic, partition: int) -> int | None:
    with log.catalog.read() as catalog:
        limit = unread(catalog, topic, partition)
        compacted = extents_of(catalog, topic)[partition].horizon
        listed = select_chunks(catalog, topic.id, "partition = ?", (partition,))
        old = [chunk for chunk in listed if limit is None or chunk.end <= limit]
        if topic.spec.settings.history_s:
            before = log.clock() - topic.spec.settings.history_s * 1_000_000
            old = [chunk for chunk in old if chunk_bounds(catalog, chunk).times[-1] <= before]
        if len(old) < 2 or old[-1].end <= compacted:
            return None
        times = Bounds.joined([chunk_bounds(catalog, chunk) for chunk in old])
    fold = _sum_equal if topic.spec.weighted else _Newest(topic, times, now=log.clock())
    rows, horizon = sum(chunk.rows for chunk in old), old[-1].end
    rewriting = Rewriting(log, topic, old)
    try:
        with Folding(fold, key=topic.spec.key, rows=rows, folder=log.root) as folding:
            for chunk in old:
                for some in slices(log, topic, chunk):
                    folding.add(some)
            folding.finish()
            if folding.rows == rows:
                return None
            for left in folding.batches():
                rewriting.add(left)
        new = rewriting.finish()
    except Swapped:
        rewriting.discard()
        return None
    except BaseException:
        rewriting.discard()
        raise

    def act(catalog: apsw.Connection) -> bool:
        still = unread(catalog, topic, partition)
        if (still is not None and still < horizon) or not swap_in(catalog, old, new, now=log.clock()):
            return False
        catalog.execute(
            "UPDATE ends SET horizon = max(horizon, ?) WHERE topic = ? AND partition = ?",
            (horizon, topic.id, partition),
        )
        return True

    if log.committer.run(act):
        return horizon
    rewriting.discard()
    return None


def _sum_equal(records: pa.Table) -> pa.Table:
    """Of records that are equal but for weight and offset the last, with the sum of the weights."""
    groups = row_groups(records.drop_columns([WEIGHT, OFFSET]))
    weights = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    np.add.at(weights, groups, records[WEIGHT].to_numpy())
    keep = np.sort(_last_of(groups, len(weights))[weights != 0])
    left = records.take(pa.array(keep))
    place = left.schema.get_field_index(WEIGHT)
    return left.set_column(place, left.schema.field(place), pa.array(weights[groups[keep]]))


class _Newest:
    """Of each key the newest record, unless it is a tombstone that has been there long enough."""

    def __init__(self, topic: KnownTopic, bounds: Bounds, *, now: int) -> None:
        self._key = list(topic.spec.key)
        self._bounds = bounds
        self._before = now - topic.spec.settings.tombstone_s * 1_000_000

    def __call__(self, records: pa.Table) -> pa.Table:
        groups = row_groups(records.select(self._key))
        keep = np.sort(_last_of(groups, int(groups.max(initial=-1)) + 1))
        left = records.take(pa.array(keep))
        deleted = left[DELETED].to_numpy().astype(bool)
        old = self._bounds.times_of(left[OFFSET].to_numpy()) < self._before
        return left.filter(pa.array(~(deleted & old)))


def row_groups(table: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row; equal rows, nulls and NaN included, have the same one."""
    total = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        codes = _codes(column)
        _, total = np.unique(total * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return total


def _codes(column: Any) -> npt.NDArray[np.int64]:
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array([json.dumps(value, default=repr) for value in column.to_pylist()])])
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    indices: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def _last_of(groups: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    last = np.zeros(count, np.int64)
    last[groups] = np.arange(len(groups))
    return last
