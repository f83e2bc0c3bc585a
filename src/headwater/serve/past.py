"""A view's rows as they were, from its topic: the sum of weights up to there is the table.

Compaction leaves below its horizon only what the rows come to there. So rows are known at the horizon and above it, and
`None` says that they are not known any more. A compaction meanwhile is noticed, and the reading begins again.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import Compacted, Missed, TopicNotFound
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.records import WEIGHT

_PLACE = "_place"


def rows_at(log: Log, topic: str, end: Position) -> pa.Table | None:
    """The rows of a weighted topic at a position that an append ends at, with their weights; equal rows are summed."""
    return changes_between(log, topic, Position(), end)


def changes_between(log: Log, topic: str, start: Position, end: Position) -> pa.Table | None:
    """What has changed from one position to the other, summed: rows that went come before those that came."""
    try:
        while True:
            spec, before = log.topic(topic), _horizons(log, topic)
            for partition, horizon in before.items():
                if 0 < end.offset(topic, partition) < horizon:
                    return None
            batches = [
                batch
                for partition in range(spec.partitions)
                for batch in log.scan(topic, partition, start.offset(topic, partition), end.offset(topic, partition))
            ]
            if _horizons(log, topic) == before:
                return summed(pa.Table.from_batches(batches, spec.stored))
    except (Compacted, Missed, TopicNotFound):
        return None


def summed(changes: pa.Table) -> pa.Table:
    """Equal rows once, with the sum of their weights; none that come to nothing; those below zero first."""
    rows = changes.combine_chunks()
    names = [name for name in rows.column_names if name != WEIGHT]
    places = pa.array(np.arange(rows.num_rows))
    keys = [f"k{number}" for number in range(len(names))]
    columns = [_comparable(rows[name]) for name in names]
    numbered = pa.table([*columns, rows[WEIGHT], places], names=[*keys, WEIGHT, _PLACE])
    groups = numbered.group_by(keys, use_threads=False).aggregate([(WEIGHT, "sum"), (_PLACE, "min")])
    weights, first = groups[f"{WEIGHT}_sum"].to_numpy(), groups[f"{_PLACE}_min"].to_numpy()
    order = np.concatenate([np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)])
    found = rows.take(pa.array(first[order], pa.int64()))
    place = found.schema.get_field_index(WEIGHT)
    return found.set_column(place, found.schema.field(place), pa.array(weights[order], pa.int64()))


def difference(new: pa.Table, old: pa.Table) -> pa.Table:
    """The changes that make the new rows of the old ones; both with weights."""
    place = old.schema.get_field_index(WEIGHT)
    gone = old.set_column(place, old.schema.field(place), pa.array(-old[WEIGHT].to_numpy(), pa.int64()))
    return summed(pa.concat_tables([gone, new.select(gone.column_names)]))


def present(rows: pa.Table) -> pa.Table:
    """Rows with weights as plain rows, each as often as it is there."""
    times = rows[WEIGHT].to_numpy()
    there = rows.drop_columns([WEIGHT])
    return (
        there if not len(times) or times.max() == 1 else there.take(pa.array(np.repeat(np.arange(len(times)), times)))
    )


def _horizons(log: Log, topic: str) -> dict[int, int]:
    return {partition: extent.horizon for partition, extent in log.extents(topic).items()}


def _comparable(column: Any) -> Any:
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([json.dumps(value, default=repr, sort_keys=True) for value in column.to_pylist()], pa.string())
