"""A topic in the user's hand: append rows of any kind, read Arrow, follow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headwater.errors import Compacted, HeadwaterError, UsageError
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Appended, Log, Part, Producer
from headwater.log.spec import Settings, TopicSpec
from headwater.log.splitting import split
from headwater.records import APPENDED_AT, DELETED, OFFSET, PARTITION, TIMESTAMP, Rows, to_batch

METADATA = [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64()), pa.field(APPENDED_AT, TIMESTAMP)]


FEW = 100
"""Appends of so many dicts are worth writing together with those of other threads."""
OVERTAKEN = 5
"""So often compaction may overtake a read before that is told."""


class Topic:
    def __init__(self, log: Log, spec: TopicSpec) -> None:
        self._log = log
        self.spec = spec
        self._turn = itertools.count()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def log(self) -> Log:
        return self._log

    # --- writing ---

    def append(
        self,
        rows: Rows,
        *,
        partition: int | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
        expect: Mapping[tuple[Any, ...], int] | None = None,
    ) -> Position:
        """Append, durably, all rows or none; returns the position right after them, to wait for in a view.

        `rows` are dicts, an Arrow table, a pandas frame, or NDJSON. They go to partitions by the hash of their key, or
        all to `partition`. With a producer and a sequence, the same append repeated is one append. `expect` gives, in a
        versioned topic, the version each key must have: else `VersionConflict`, and nothing is appended.
        """
        return self.append_parts(
            rows, partition=partition, producer=producer, sequence=sequence, expect=expect
        ).position

    def append_parts(
        self,
        rows: Rows,
        *,
        partition: int | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
        expect: Mapping[tuple[Any, ...], int] | None = None,
    ) -> Appended:
        if isinstance(rows, list) and len(rows) <= FEW and partition is None and producer is None and not expect:
            return self._log.append_rows(self.name, rows, turn=next(self._turn))
        expected = {self.name: expect} if expect else None
        parts = self.parts(rows, partition=partition)
        return self._log.append(parts, producer=producer, sequence=sequence, expect=expected)

    def append_each(self, several: Sequence[list[Any]]) -> list[Appended | HeadwaterError | None]:
        """See `Log.append_each`."""
        turn = next(self._turn)
        for _ in several[1:]:
            next(self._turn)
        return self._log.append_each(self.name, several, turn=turn)

    def upsert(self, rows: Rows) -> Position:
        """In an upsert table: these are now the rows of their keys."""
        self._only_upsert("upsert")
        return self.append(rows)

    def delete(self, keys: Sequence[Mapping[str, Any]]) -> Position:
        """In an upsert table: the rows of these keys are gone."""
        self._only_upsert("delete")
        return self.append([{**{name: key.get(name) for name in self.spec.key}, DELETED: True} for key in keys])

    def _only_upsert(self, act: str) -> None:
        if not self.spec.upsert:
            raise UsageError(
                what=f"topic {self.name!r} takes no {act}: it was not made with upsert=True",
                do="Append the old row with _weight -1 and the new one with +1",
            )

    def parts(self, rows: Rows, *, partition: int | None = None, producer: Producer | None = None) -> list[Part]:
        """Typed, checked, and split by the hash of the key; without a key, appends take turns over the partitions."""
        batch = to_batch(rows, self.spec.stored, topic=self.name, required=self.spec.required)
        if partition is not None:
            by_partition: Mapping[int, pa.RecordBatch] = {partition: batch} if batch.num_rows else {}
        else:
            by_partition = split(batch, self.spec.key, self.spec.partitions, turn=next(self._turn))
        return [self._log.stage(self.name, number, part, producer=producer) for number, part in by_partition.items()]

    # --- reading ---

    def read(self, start: Position | datetime | None = None, end: Position | None = None) -> pa.Table:
        """The records after `start` (a position, or those appended since a time) up to `end`, with metadata columns."""
        first, last = self._beginning(start), end or self.end()
        batches = [batch for partition in range(self.spec.partitions) for batch in self._whole(partition, first, last)]
        return pa.Table.from_batches(batches, pa.schema([*self.spec.stored, *METADATA]))

    def follow(
        self, start: Position | datetime | None = None, *, timeout_s: float | None = None
    ) -> Iterator[tuple[pa.RecordBatch, Position]]:
        """Records as they come, each batch with the position after it. Ends when nothing came for `timeout_s`."""
        here = self._beginning(start)
        seen = AppendNumber(0)
        quiet_since = time.monotonic()
        while True:
            snapshot = self._log.snapshot([self.name])
            if snapshot.position.covers(here) and snapshot.position != here:
                for batch in self._between(here, snapshot.position):
                    here = _advanced(here, self.name, batch)
                    yield batch, here
                here = snapshot.position
                quiet_since = time.monotonic()
            seen = max(seen, snapshot.number)
            left = 1.0 if timeout_s is None else quiet_since + timeout_s - time.monotonic()
            if left <= 0:
                return
            self._log.wait(seen, min(left, 1.0))

    def start(self) -> Position:
        """Where what is still there begins."""
        return Position.of({self.name: {p: extent.start for p, extent in self._log.extents(self.name).items()}})

    def end(self) -> Position:
        return self._log.snapshot([self.name]).position

    def at(self, moment: datetime) -> Position:
        """Where the records begin that were appended at that time or later."""
        us = int(moment.astimezone(UTC).timestamp() * 1_000_000)
        return Position.of({self.name: self._log.position_from(self.name, us)})

    def _beginning(self, start: Position | datetime | None) -> Position:
        if isinstance(start, datetime):
            return self.at(start)
        return start if start is not None else self.start()

    def _between(self, first: Position, last: Position) -> Iterator[pa.RecordBatch]:
        for partition in range(self.spec.partitions):
            yield from self._of(partition, first, last)

    def _of(self, partition: int, first: Position, last: Position) -> Iterator[pa.RecordBatch]:
        low, high = first.offset(self.name, partition), last.offset(self.name, partition)
        if high > low:
            yield from self._log.scan(self.name, partition, low, high, metadata=True)

    def _whole(self, partition: int, first: Position, last: Position) -> list[pa.RecordBatch]:
        """Begun anew when compaction has overtaken it: from the start that can be done."""
        for _ in range(OVERTAKEN):
            try:
                return list(self._of(partition, first, last))
            except Compacted:
                if first.offset(self.name, partition):
                    raise
        return list(self._of(partition, first, last))

    # --- changing ---

    def alter(self, *, schema: pa.Schema | None = None, settings: Settings | None = None) -> None:
        self.spec = self._log.alter(self.name, schema=schema, settings=settings)


def _advanced(here: Position, topic: str, batch: pa.RecordBatch) -> Position:
    ends = here.as_dict()
    ends.setdefault(topic, {})[batch.column(PARTITION)[0].as_py()] = batch.column(OFFSET)[-1].as_py() + 1
    return Position.of(ends)
