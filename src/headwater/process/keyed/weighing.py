"""Rows that come and rows that go, as one table of weighted rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.process import duck
from headwater.process.keyed.fixed import typed
from headwater.process.keyed.reducing import reduced
from headwater.records import WEIGHT


def weighed(columns: pa.Schema, parts: Sequence[tuple[pa.Table, int]]) -> pa.Table:
    tables = [columns.append(pa.field(WEIGHT, pa.int64())).empty_table()]
    for rows, weight in parts:
        if rows.num_rows:
            own = typed(rows, columns)
            tables.append(own.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64))))
    return pa.concat_tables(tables)


def netted(rows: pa.Table) -> pa.Table:
    """Each row once, with the sum of its weights; those that cancel are gone."""
    summed = reduced(rows, [name for name in rows.schema.names if name != WEIGHT], [(WEIGHT, "sum")])
    if summed is None:
        return duck.run(net("FROM rows"), rows=rows)
    return summed.filter(pc.not_equal(summed[WEIGHT], 0)).select(rows.schema.names)


def net(sql: str) -> str:
    """The query's rows, netted."""
    return f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM ({sql}) GROUP BY ALL HAVING sum({WEIGHT}) <> 0"


def only_added(rows: pa.Table) -> bool:
    """Whether no row is taken away: then nothing can cancel, and what it costs to look for it is spared."""
    return rows.num_rows == 0 or int(pc.min(rows[WEIGHT]).as_py()) > 0


def one_by_one(rows: pa.Table) -> pa.Table:
    """Rows that are there several times as several rows, for those who count rows that are only added."""
    times = rows[WEIGHT].to_numpy()
    if not len(times) or times.max() == 1:
        return rows
    several = rows.take(np.repeat(np.arange(len(times)), times))
    place = several.schema.get_field_index(WEIGHT)
    return several.set_column(place, WEIGHT, pa.array(np.ones(several.num_rows, np.int64)))


def present(rows: pa.Table) -> pa.Table:
    """The rows that are there, each as often as it is, in an order that depends on nothing but them."""
    net = duck.run(
        f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM rows"
        f" GROUP BY ALL HAVING sum({WEIGHT}) > 0 ORDER BY ALL",
        rows=rows,
    )
    times = net[WEIGHT].to_numpy()
    there = net.drop_columns([WEIGHT])
    return there if not len(times) or times.max() == 1 else there.take(np.repeat(np.arange(len(times)), times))
