"""An operator's columns, by asking it over nothing; and values by which nothing can be found are refused."""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import SqlRefused
from headwater.process.keyed.aggregate import Aggregate
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.operator import Operator


def answered(view: str, operator: Operator, sample: pa.Schema) -> pa.Schema:
    """`sample` are the columns that arrive at its first port."""
    try:
        return operator.step(MemoryState(), {0: sample.empty_table()}, None).rows.schema
    except pa.ArrowNotImplementedError:
        named = {field.name: field.type for field in sample}
        if isinstance(operator, Aggregate):
            named |= {f"count(DISTINCT ...) AS {name}": each.kind for each in operator.distinct for name in each.counts}
        intervals = [name for name, kind in named.items() if pa.types.is_interval(kind)]
        if not intervals:
            raise
        raise SqlRefused(
            view=view,
            construct=f"an INTERVAL to group, join or compare by ({', '.join(intervals)})",
            do="Take its length as a number, such as epoch_us(a) - epoch_us(b), or as text by ::VARCHAR",
        ) from None
