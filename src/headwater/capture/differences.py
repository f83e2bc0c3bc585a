"""What must be appended to a table's topic so that it says what the table holds, and nothing for rows that agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.current import removal
from headwater.log.spec import TopicSpec

Mask = npt.NDArray[np.bool_]


def differences(spec: TopicSpec, told: pa.Table, held: pa.Table) -> list[pa.RecordBatch]:
    """`told` are the rows by the topic, `held` those by the table; each key once in either."""
    told, held = told.combine_chunks(), held.combine_chunks()
    left = told.select(spec.key).append_column("_told", pa.array(np.arange(told.num_rows)))
    right = held.select(spec.key).append_column("_held", pa.array(np.arange(held.num_rows)))
    pairs = left.join(right, keys=list(spec.key), join_type="full outer")
    both = pairs.filter(pc.and_(pc.is_valid(pairs["_told"]), pc.is_valid(pairs["_held"])))
    old, new = told.take(both["_told"]), held.take(both["_held"])
    changed = pa.array(~_same(spec, old, new))
    gone = [told.take(pairs.filter(pc.is_null(pairs["_held"]))["_told"])]
    come = [held.take(pairs.filter(pc.is_null(pairs["_told"]))["_held"]), new.filter(changed)]
    if spec.weighted:
        gone.append(old.filter(changed))
    taken = [removal(spec, batch) for rows in gone for batch in rows.select(spec.schema.names).to_batches()]
    return taken + [arrival(spec, batch) for rows in come for batch in rows.select(spec.schema.names).to_batches()]


def arrival(spec: TopicSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records that say that these rows are there."""
    mark = pa.scalar(1, pa.int64()) if spec.weighted else pa.scalar(False)
    return pa.RecordBatch.from_arrays([*rows.columns, pa.repeat(mark, rows.num_rows)], schema=spec.stored)


def _same(spec: TopicSpec, these: pa.Table, those: pa.Table) -> Mask:
    same = np.ones(these.num_rows, np.bool_)
    for field in spec.schema:
        one, other = these[field.name], those[field.name]
        if pa.types.is_nested(field.type):
            equal = np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], np.bool_)
        else:
            level = pc.fill_null(pc.equal(one, other), False)
            both_null = pc.and_(pc.is_null(one), pc.is_null(other))
            equal = pc.or_(level, both_null).to_numpy()
        same &= equal
    return same
