"""The rows that a table topic holds, asked for by key: what is retracted, or found to be the same, is what was told."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.keyindex import KeyIndex
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.records import DELETED, WEIGHT

Key = tuple[Any, ...]
Row = dict[str, Any]


class Held:
    def __init__(self, log: Log, spec: TopicSpec) -> None:
        self.spec = spec
        self._index = KeyIndex(log, spec.name, spec.partitions, every=True)

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.spec.key)

    def rows(self, keys: Collection[Key]) -> dict[Key, Row]:
        """Of these keys those that have a row, and the row."""
        if not keys:
            return {}
        columns = zip(*keys, strict=True)
        kinds = [self.spec.schema.field(name).type for name in self.spec.key]
        asked = pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], list(self.spec.key)
        )
        return {self.key(row): row for row in self.table(asked).to_pylist()}

    def table(self, keys: pa.RecordBatch) -> pa.Table:
        """The rows that there are of these keys, each of which is asked for once."""
        records, which = self._index.rows(self.spec, keys)
        known = pa.array(which >= 0)
        found, asked = records.take(pa.array(which).filter(known)), keys.filter(known)
        there = pc.greater(found[WEIGHT], 0) if self.spec.weighted else pc.invert(found[DELETED])
        for name in self.spec.key:  # they were found by their hash
            there = pc.and_(there, pc.equal(found[name], asked.column(name)))
        return found.filter(there).select(self.spec.schema.names)


def records_of(spec: TopicSpec, changes: list[tuple[Row, int]]) -> pa.RecordBatch:
    """Rows that came (+1) and went (-1), in this order, as the topic stores them; a tombstone has only its key."""
    columns = []
    for field in spec.schema:
        kept = spec.weighted or field.name in spec.key
        values = [row[field.name] if kept or sign > 0 else None for row, sign in changes]
        columns.append(pa.array(values, field.type))
    signs = [sign for _, sign in changes]
    marks = pa.array(signs, pa.int64()) if spec.weighted else pa.array([sign < 0 for sign in signs], pa.bool_())
    return pa.RecordBatch.from_arrays([*columns, marks], schema=spec.stored)
