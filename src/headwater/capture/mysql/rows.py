"""Fields of a table's rows become the record batch that its topic stores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headwater.capture.compiled import Bytes, Ints, Lengths
from headwater.capture.mysql.frames import split_rows
from headwater.capture.mysql.layout import Layout
from headwater.capture.mysql.tables import Table
from headwater.log.spec import TopicSpec


def selected(table: Table, spec: TopicSpec, data: Bytes, rows: int) -> pa.RecordBatch:
    """Rows of a result; all are there."""
    starts, lengths = split_rows(data, rows, len(table.columns))
    read = {each.name: each.read_text(data, starts[n], lengths[n]) for n, each in enumerate(table.columns)}
    return _batch(spec, read, np.ones(rows, np.int64))


def imaged(
    layout: Layout, spec: TopicSpec, data: Bytes, starts: Ints, lengths: Lengths, signs: Lengths
) -> pa.RecordBatch:
    """Row images; `signs` are +1 for a row that is there and -1 for one that is gone."""
    read = {
        each.name: each.read_image(data, starts[n], lengths[n])
        for n, each in enumerate(layout.columns)
        if each is not None
    }
    return _batch(spec, read, signs.astype(np.int64))


def _batch(spec: TopicSpec, read: Mapping[str, pa.Array], signs: Ints) -> pa.RecordBatch:
    columns = []
    for field in spec.schema:
        column = read.get(field.name)
        if column is None:
            column = pa.nulls(len(signs), field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays([*columns, pa.array(signs)], schema=spec.stored)
