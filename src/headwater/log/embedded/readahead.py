"""Single records by offset, for queues: what was read of a chunk is kept for the takes that follow.

One run of records a partition is kept, together with the chunk it is from: after upkeep has swapped the chunk, for
example because a record was forgotten, the run is not used any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.log.embedded.bounds import Ints
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.rows import select_chunks
from headwater.records import APPENDED_AT, OFFSET, PARTITION

ROWS = 512
BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Run:
    chunk: int
    start: int
    end: int
    offsets: Ints
    records: pa.Table

    def record(self, offset: int) -> dict[str, Any] | None:
        """None for an offset whose record upkeep has removed."""
        place = int(np.searchsorted(self.offsets, offset))
        if place == len(self.offsets) or self.offsets[place] != offset:
            return None
        rows: list[dict[str, Any]] = self.records.slice(place, 1).to_pylist()
        return rows[0]


class ReadAhead:
    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._runs: dict[tuple[str, int], _Run] = {}

    def record(self, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
        run = self._runs.get((topic, partition))
        chunk, end = self._chunk(topic, partition, offset)
        if run is None or run.chunk != chunk or not run.start <= offset < run.end:
            run = self._read(topic, partition, offset, chunk, end)
        return run.record(offset)

    def _chunk(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        known = self._log.known(topic)
        with self._log.catalog.read() as catalog:
            found = select_chunks(catalog, known.id, 'partition = ? AND "end" > ?', (partition, offset), limit=1)
        return (found[0].id, found[0].end) if found else (0, offset + 1)

    def _read(self, topic: str, partition: int, offset: int, chunk: int, end: int) -> _Run:
        end = min(end, offset + ROWS)
        batches = list(self._log.scan(topic, partition, offset, end, metadata=True))
        if not batches:
            return _Run(chunk, offset, end, np.array([], np.int64), pa.table({}))
        read = pa.Table.from_batches(batches)
        records = read.drop_columns([PARTITION, OFFSET, APPENDED_AT])
        kept = records.take(pa.array(range(records.num_rows)))  # a copy: a slice would hold the whole chunk in memory
        run = _Run(chunk, offset, end, read.column(OFFSET).to_numpy(), kept)
        if kept.nbytes <= BYTES:
            self._runs[topic, partition] = run
        return run
