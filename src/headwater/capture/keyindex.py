"""Where in a topic the newest record of a key is: of every key or only, for databases that do not tell large values
again, of rows so wide that this may happen to them.

Kept in memory, filled from the topic when it is first asked for, and from then on with what came since: 16 bytes for
each of these rows. Records are found by the hash of their key, in sorted runs, the newest run first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.keyhash import Hashes, key_hash, spread
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.records import OFFSET

RUNS = 8
NEAR = 4096
"""Records that are not further apart are read in one go."""
WIDE_BYTES = 2000
"""Rows that take less than this in PostgreSQL keep all of their values in place."""

Offsets = npt.NDArray[np.int64]


@dataclass
class _Place:
    """Rows of a partition up to `end`: runs of (hashes, offsets), sorted by hash, the oldest run first."""

    end: int = 0
    runs: list[tuple[Hashes, Offsets]] = field(default_factory=list)

    def add(self, hashes: Hashes, offsets: Offsets) -> None:
        if len(hashes):
            order = np.argsort(hashes, kind="stable")
            self.runs.append((hashes[order], offsets[order]))
        if len(self.runs) > RUNS:
            every, places = (np.concatenate(each) for each in zip(*self.runs, strict=True))
            order = np.lexsort((places, every))
            last = np.append(every[order][1:] != every[order][:-1], True)
            self.runs = [(every[order][last], places[order][last])]

    def find(self, wanted: Hashes) -> Offsets:
        """Of each hash the newest offset; -1 if there is none."""
        found = np.full(len(wanted), -1, np.int64)
        for hashes, offsets in reversed(self.runs):
            places = np.searchsorted(hashes, wanted, side="right") - 1
            hit = (found < 0) & (places >= 0) & (hashes[np.maximum(places, 0)] == wanted)
            found[hit] = offsets[places[hit]]
        return found


class KeyIndex:
    def __init__(self, log: Log, topic: str, partitions: int, *, every: bool = False) -> None:
        self._log = log
        self._topic = topic
        self._every = every
        self._places = [_Place() for _ in range(partitions)]

    def rows(self, spec: TopicSpec, keys: pa.RecordBatch) -> tuple[pa.Table, Offsets]:
        """The newest records of these keys, and which of them belongs to each key; -1 if there is none."""
        self._catch_up(spec)
        hashes = key_hash([keys.column(name) for name in spec.key])
        ways = spread(hashes, spec.partitions)
        which, tables, count = np.full(len(hashes), -1, np.int64), [spec.stored.empty_table()], 0
        for way in np.unique(ways).tolist():
            mine = np.flatnonzero(ways == way)
            offsets = self._places[way].find(hashes[mine])
            known = offsets >= 0
            read, found = self._read(spec, way, np.unique(offsets[known]))
            places = np.searchsorted(found, offsets[known])
            there = np.isin(offsets[known], found)
            which[mine[known][there]] = count + places[there]
            tables.append(read)
            count += len(found)
        return pa.concat_tables(tables).combine_chunks(), which

    def _catch_up(self, spec: TopicSpec) -> None:
        ends = self._log.snapshot([self._topic]).position
        extents = self._log.extents(self._topic)
        columns = list(spec.key) if self._every else None
        for partition, place in enumerate(self._places):
            end, extent = ends.offset(self._topic, partition), extents[partition]
            start = max(place.end, extent.start) if place.end >= extent.horizon else extent.start
            for batch in self._log.scan(self._topic, partition, start, end, columns=columns, metadata=True):
                picked = batch if self._every else _wide_ones(batch, spec)
                if picked.num_rows:
                    hashes = key_hash([picked.column(name) for name in spec.key])
                    place.add(hashes, picked.column(OFFSET).to_numpy())
            place.end = end

    def _read(self, spec: TopicSpec, partition: int, offsets: Offsets) -> tuple[pa.Table, Offsets]:
        """The records that are there at these offsets; compaction takes away only those of rows that are gone."""
        extent = self._log.extents(self._topic)[partition]
        tables, found = [spec.stored.empty_table()], [np.zeros(0, np.int64)]
        for some in _near(offsets):
            low, high = int(some[0]), int(some[-1]) + 1
            low = low if low >= extent.horizon else extent.start
            for batch in self._log.scan(self._topic, partition, low, high, metadata=True):
                here = batch.column(OFFSET).to_numpy()
                chosen = np.isin(here, some)
                if chosen.any():
                    tables.append(pa.Table.from_batches([batch.select(spec.stored.names).filter(pa.array(chosen))]))
                    found.append(here[chosen])
        return pa.concat_tables(tables), np.concatenate(found)


def _wide_ones(batch: pa.RecordBatch, spec: TopicSpec) -> pa.RecordBatch:
    return batch.take(pa.array(np.flatnonzero(wide(batch.select(spec.schema.names)))))


def wide(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Rows that may be too large for PostgreSQL to keep in place; when in doubt, they are."""
    bound = np.full(rows.num_rows, 24 * rows.num_columns, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            bound += 4 * pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
        elif pa.types.is_list(column.type):
            bound += WIDE_BYTES
    found: npt.NDArray[np.bool_] = bound > WIDE_BYTES
    return found


def _near(offsets: Offsets) -> Sequence[Offsets]:
    if not len(offsets):
        return []
    return np.split(offsets, np.flatnonzero(np.diff(offsets) > NEAR) + 1)
