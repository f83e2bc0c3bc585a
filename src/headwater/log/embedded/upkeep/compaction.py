"""Compaction of tables: below a horizon only what counts is left.

    weighted   records that are equal but for their weight become one with the sum; a sum of zero is nothing
    upsert     of each key the newest record; a tombstone goes too, once it is older than the topic's `tombstone_s`

What is left keeps its offset (of equal records, the last one's). The horizon is the end of a chunk and never passes the
position of a registered consumer; whoever starts later inside of it is told (`Compacted`) and begins at 0.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.embedded.bounds import Ints
from headwater.log.embedded.rows import KnownTopic, select_chunks
from headwater.log.embedded.upkeep.limits import unread
from headwater.log.embedded.upkeep.swap import Loaded, load, swap_in, write_records
from headwater.records import DELETED, WEIGHT

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
        listed = select_chunks(catalog, topic.id, "partition = ?", (partition,))
    old = [chunk for chunk in listed if limit is None or chunk.end <= limit]
    if len(old) < 2:
        return None
    loaded = load(log, topic, old)
    records, offsets = _compacted(topic, loaded, now=log.clock())
    if len(offsets) == sum(chunk.rows for chunk in old):
        return None
    new = write_records(log, topic, loaded, records, offsets)
    horizon = old[-1].end

    def act(catalog: apsw.Connection) -> bool:
        still = unread(catalog, topic, partition)
        if (still is not None and still < horizon) or not swap_in(catalog, old, [new], now=log.clock()):
            return False
        catalog.execute(
            "UPDATE ends SET horizon = max(horizon, ?) WHERE topic = ? AND partition = ?",
            (horizon, topic.id, partition),
        )
        return True

    if log.committer.run(act):
        return horizon
    if new.file is not None:
        log.disk.remove(new.file)
    return None


def _compacted(topic: KnownTopic, loaded: Loaded, *, now: int) -> tuple[pa.Table, Ints]:
    records, offsets = loaded.records, loaded.offsets
    if topic.spec.weighted:
        groups = row_groups(records.drop_columns([WEIGHT]))
        weights = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
        np.add.at(weights, groups, records[WEIGHT].to_numpy())
        last = _last_of(groups, len(weights))
        keep = np.sort(last[weights != 0])
        records = records.take(pa.array(keep))
        place = records.schema.get_field_index(WEIGHT)
        return records.set_column(place, records.schema.field(place), pa.array(weights[groups[keep]])), offsets[keep]
    groups = row_groups(records.select(list(topic.spec.key)))
    keep = np.sort(_last_of(groups, int(groups.max(initial=-1)) + 1))
    times = loaded.bounds.times_of(offsets[keep])
    gone = records[DELETED].to_numpy(zero_copy_only=False)[keep] & (
        times < now - topic.spec.settings.tombstone_s * 1_000_000
    )
    keep = keep[~gone.astype(bool)]
    return records.take(pa.array(keep)), offsets[keep]


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
