"""Folding the records of a partition in bounded memory, however many there are.

A fold makes fewer records of many that come in the order of their offsets, such as one of all that are equal; folding
what is folded together with what comes after it gives the same as folding all at once. So:

    1  Records are gathered and folded whenever they are `MOST_BYTES`. A table that changes much and is small ends here.
    2  If what is left is still large, all goes to disk, split by the hash of the key: what can be folded together has
       the same key. Each way is then small enough to be folded alone.
    3  What is left of each way goes to disk again, in the order of offsets; the ways are merged by it.

Not bounded is what one key alone leaves: rows of a key stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.embedded.upkeep.spill import Spill
from headwater.log.keyhash import grouped, key_hash, spread
from headwater.records import OFFSET

MOST_BYTES = 8 * 1024 * 1024
MOST_WAYS = 256
Fold = Callable[[pa.Table], pa.Table]
"""From records with their `_offset`, ascending, to fewer of them, ascending."""


class Folding:
    """First `add` all records, then `finish`, then read the `batches`; it holds files until it is closed."""

    def __init__(self, fold: Fold, *, key: tuple[str, ...], rows: int, folder: Path) -> None:
        self._fold = fold
        self._key = key
        self._expected = rows
        self._folder = folder
        self._most = MOST_BYTES
        self._seen = 0
        self._gathered = _Gathered(fold, self._most)
        self._ways: Spill | None = None
        self._runs: Spill | None = None
        self._opened = ExitStack()
        self.rows = 0
        """How many are left, once it is finished."""

    def __enter__(self) -> Folding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def add(self, records: pa.Table) -> None:
        self._seen += records.num_rows
        if self._ways is not None:
            self._split(records)
        elif self._gathered.add(records) > self._most // 2:  # step 1
            self._spill()

    def finish(self) -> None:
        if self._ways is None:
            self.rows = self._gathered.fold().num_rows
            return
        self._runs = self._opened.enter_context(Spill(self._folder, len(self._ways)))
        for way in range(len(self._ways)):
            gathered = _Gathered(self._fold, self._most)
            for records in self._ways.read(way):
                gathered.add(records)
            left = gathered.fold()
            self.rows += left.num_rows
            if left.num_rows:  # of each run one batch is in memory while they are merged: all together `MOST_BYTES`
                rows = max(1, left.num_rows * self._most // (len(self._ways) * max(1, left.nbytes)))
                self._runs.write(way, left, batch_rows=rows)

    def batches(self) -> Iterator[pa.Table]:
        """What is left, ascending."""
        if self._runs is None:
            yield self._gathered.fold()
        else:
            yield from _merged([self._runs.read(way) for way in range(len(self._runs))])

    def _spill(self) -> None:  # step 2
        records = self._gathered.fold()
        expected = records.nbytes * self._expected // max(1, self._seen)
        ways = min(MOST_WAYS, max(2, -(-2 * expected // self._most)))
        self._ways = self._opened.enter_context(Spill(self._folder, ways))
        self._gathered = _Gathered(self._fold, self._most)
        self._split(records)

    def _split(self, records: pa.Table) -> None:
        assert self._ways is not None
        # The partition was chosen by the upper half of the hash: within it the lower one spreads.
        hashes = key_hash([records[name] for name in self._key]) << np.uint64(32)
        order, bounds = grouped(spread(hashes, len(self._ways)), len(self._ways))
        ordered = records.take(pa.array(order))
        for way in range(len(self._ways)):
            low, high = int(bounds[way]), int(bounds[way + 1])
            if high > low:
                self._ways.write(way, ordered.slice(low, high - low))


class _Gathered:
    def __init__(self, fold: Fold, most_bytes: int) -> None:
        self._fold = fold
        self._most = most_bytes
        self._parts: list[pa.Table] = []
        self._bytes = 0
        self._folded = True

    def add(self, records: pa.Table) -> int:
        """How many bytes are left after what had to be folded was folded; 0 if nothing had to be."""
        self._parts.append(records)
        self._bytes += records.nbytes
        self._folded = False
        return self.fold().nbytes if self._bytes > self._most else 0

    def fold(self) -> pa.Table:
        if not self._folded:
            left = self._fold(pa.concat_tables(self._parts))
            self._parts, self._bytes, self._folded = [left], left.nbytes, True
        return self._parts[0]


def _merged(runs: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Of each run the next batch is there; up to the lowest of their last offsets nothing else can come."""
    current = [next(run, None) for run in runs]
    while any(batch is not None for batch in current):
        upto = min(batch[OFFSET][-1].as_py() for batch in current if batch is not None)
        due = []
        for number, batch in enumerate(current):
            if batch is None:
                continue
            count = int(np.searchsorted(batch[OFFSET].to_numpy(), upto, "right"))
            due.append(batch.slice(0, count))
            rest = batch.slice(count)
            current[number] = rest if rest.num_rows else next(runs[number], None)
        together = pa.concat_tables(due)
        yield together.take(pc.sort_indices(together[OFFSET]))
