"""Fields of a table's rows become the record batch that its topic stores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.capture.compiled import Bytes, Ints, Lengths
from headwater.capture.postgres.tables import Table
from headwater.log.spec import TopicSpec


def batch_of(
    table: Table, spec: TopicSpec, data: Bytes, starts: Ints, lengths: Lengths, signs: Lengths | None = None
) -> pa.RecordBatch:
    """`signs` are +1 for a row that is there and -1 for one that is gone; without them, all are there."""
    rows = starts.shape[1]
    read = {column.name: column.read(data, starts[place], lengths[place]) for place, column in enumerate(table.columns)}
    columns = []
    for field in spec.schema:
        column = read.get(field.name)
        if column is None:
            column = pa.nulls(rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    if spec.weighted:
        marks = pa.array(np.ones(rows, np.int64) if signs is None else signs.astype(np.int64))
    else:
        marks = pa.array(np.zeros(rows, np.bool_) if signs is None else signs < 0)
    return pa.RecordBatch.from_arrays([*columns, marks], schema=spec.stored)
