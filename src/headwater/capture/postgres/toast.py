"""Large values that an update did not change are not sent again: they are put back from what was captured before.

The row before is looked for where it must be: among the rows of the same run, in parts that are staged for the same
append, in the topic. If the key changed, it stands under the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.capture.compiled import Ints, Lengths
from headwater.capture.keyindex import KeyIndex
from headwater.errors import TableChanged
from headwater.log.keyhash import key_hash
from headwater.log.protocol import Log, Part
from headwater.log.spec import TopicSpec
from headwater.records import DELETED

Mask = npt.NDArray[np.bool_]
Key = tuple[object, ...]


@dataclass(frozen=True)
class Run:
    """Rows of one run of messages, with what is missing in them: by column, which rows."""

    batch: pa.RecordBatch
    signs: Lengths
    messages: Ints
    missing: dict[str, Mask]


class Toast:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._indexes: dict[str, KeyIndex] = {}

    def repaired(self, table: str, spec: TopicSpec, run: Run, pending: Sequence[Part]) -> pa.RecordBatch:
        """The rows with every value in its place."""
        keys = _keys(run.batch, spec)
        needing = np.flatnonzero(np.logical_or.reduce(list(run.missing.values())))
        sources, outside = _within(run, keys, needing.tolist())
        found = self._found(
            table, spec, [keys[row] for row in outside], run.batch.take(pa.array(outside, pa.int64())), pending
        )
        return _filled(run, sources, outside, found)

    def _found(
        self, table: str, spec: TopicSpec, keys: list[Key], rows: pa.RecordBatch, pending: Sequence[Part]
    ) -> pa.Table:
        """For each key its newest row outside of the run."""
        if not keys:
            return spec.stored.empty_table()
        staged = self._staged(spec, set(keys), rows, [part for part in pending if part.topic == spec.name])
        index = self._indexes.setdefault(spec.name, KeyIndex(self._log, spec.name, spec.partitions))
        records, which = index.rows(spec, rows)
        tables = []
        for place, key in enumerate(keys):
            row = staged.get(key)
            if row is None and which[place] >= 0:
                row = records.slice(int(which[place]), 1)
            if row is None or row[DELETED][0].as_py() or _keys(row, spec)[0] != key:
                raise TableChanged(
                    table=table,
                    topic=spec.name,
                    why=f"a large value of key {key} did not change and was not sent, and is not in the topic",
                    do=f"Run: headwater capture resnapshot NAME {table}",
                )
            tables.append(row)
        return pa.concat_tables(tables)

    def _staged(
        self, spec: TopicSpec, keys: set[Key], rows: pa.RecordBatch, parts: Sequence[Part]
    ) -> dict[Key, pa.Table]:
        wanted = key_hash([rows.column(name) for name in spec.key])
        found: dict[Key, pa.Table] = {}
        for part in parts:
            for batch in self._log.peek(part):
                hashes = key_hash([batch.column(name) for name in spec.key])
                for row in np.flatnonzero(np.isin(hashes, wanted)).tolist():
                    one = pa.Table.from_batches([batch.slice(row, 1)])
                    key = _keys(one, spec)[0]
                    if key in keys:
                        found[key] = one
        return found


def _within(run: Run, keys: list[Key], needing: list[int]) -> tuple[dict[int, int], list[int]]:
    """For rows that need one, the row before: in this run, or -1 and then the row whose key it stands under."""
    newest: dict[Key, int] = {}
    sources: dict[int, int] = {}
    outside: list[int] = []
    wanted = set(needing)
    for row, key in enumerate(keys):
        if row in wanted:
            moved = row > 0 and run.messages[row] == run.messages[row - 1] and run.signs[row - 1] < 0
            under = row - 1 if moved else row
            before = newest.get(keys[under], -1)
            sources[row] = before
            if before < 0:
                outside.append(under)
        if run.signs[row] > 0:
            newest[key] = row
        elif row + 1 == len(keys) or run.messages[row + 1] != run.messages[row]:
            newest.pop(key, None)  # a deletion; the old key of an update is asked for in the next step
    return sources, outside


def _filled(run: Run, sources: dict[int, int], outside: list[int], found: pa.Table) -> pa.RecordBatch:
    rows = run.batch.num_rows
    beyond = iter(range(rows, rows + len(outside)))
    given = {row: (next(beyond) if before < 0 else before) for row, before in sources.items()}
    columns = []
    for name, column in zip(run.batch.schema.names, run.batch.columns, strict=True):
        missing = run.missing.get(name)
        if missing is None or not missing.any():
            columns.append(column)
            continue
        places = np.arange(rows)
        for row in np.flatnonzero(missing).tolist():  # in order: what a row takes from may have been filled itself
            before = given[row]
            places[row] = places[before] if before < rows else before
        every = pa.concat_arrays([column, found[name].combine_chunks()])
        columns.append(every.take(pa.array(places)))
    return pa.RecordBatch.from_arrays(columns, schema=run.batch.schema)


def _keys(rows: pa.RecordBatch | pa.Table, spec: TopicSpec) -> list[Key]:
    return list(zip(*(rows.column(name).to_pylist() for name in spec.key), strict=True))
