"""A topic in the user's hand: append Python rows or Arrow, read Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pyarrow as pa

from headwater.log.keyhash import grouped, key_hash, spread
from headwater.log.position import Position
from headwater.log.protocol import Appended, Log, Part, Producer, TopicSpec
from headwater.records import APPENDED_AT, OFFSET, PARTITION, TIMESTAMP, Rows, to_batch


class Topic:
    def __init__(self, log: Log, spec: TopicSpec) -> None:
        self._log = log
        self.spec = spec
        self._turn = itertools.count()

    @property
    def name(self) -> str:
        return self.spec.name

    def append(self, rows: Rows, *, producer: Producer | None = None, sequence: int | None = None) -> Position:
        """Append, durably, all rows or none; returns the position right after them, to wait for in a view.

        With a producer and a sequence, the same append repeated is one append.
        """
        return self.append_parts(rows, producer=producer, sequence=sequence).position

    def append_parts(self, rows: Rows, *, producer: Producer | None = None, sequence: int | None = None) -> Appended:
        return self._log.append(self.parts(rows), producer=producer, sequence=sequence)

    def parts(self, rows: Rows) -> list[Part]:
        """Typed, checked, and split by the hash of the key; without a key, appends take turns over the partitions."""
        batch = to_batch(rows, self.spec.stored, topic=self.name, required=self.spec.required)
        by_partition = split(batch, self.spec.key, self.spec.partitions, turn=next(self._turn))
        return [self._log.stage(self.name, partition, part) for partition, part in by_partition.items()]

    def read(self, start: Position | None = None, end: Position | None = None) -> pa.Table:
        """The records after `start` (default: the first) up to `end` (default: the newest), with metadata columns."""
        first = start or Position()
        last = end or self._log.snapshot([self.name]).position
        batches = [
            batch
            for partition in range(self.spec.partitions)
            for batch in self._log.scan(
                self.name,
                partition,
                first.offset(self.name, partition),
                last.offset(self.name, partition),
                metadata=True,
            )
        ]
        fields = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (APPENDED_AT, TIMESTAMP)]
        return pa.Table.from_batches(batches, pa.schema([*self.spec.stored, *(pa.field(*field) for field in fields)]))

    def end(self) -> Position:
        return self._log.snapshot([self.name]).position


def split(batch: pa.RecordBatch, key: tuple[str, ...], ways: int, *, turn: int = 0) -> Mapping[int, pa.RecordBatch]:
    """The rows by the hash of their key, in their order; rows without a key stay together."""
    if batch.num_rows == 0:
        return {}
    if ways == 1 or not key:
        return {turn % ways: batch}
    numbers = spread(key_hash([batch.column(name) for name in key]), ways)
    if batch.num_rows == 1:
        return {int(numbers[0]): batch}
    order, bounds = grouped(numbers, ways)
    ordered = batch.take(pa.array(order))
    return {
        way: ordered.slice(int(bounds[way]), int(bounds[way + 1] - bounds[way]))
        for way in range(ways)
        if bounds[way + 1] > bounds[way]
    }
