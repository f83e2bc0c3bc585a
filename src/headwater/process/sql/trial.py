"""An operator's columns, by asking it over nothing; and values by which nothing can be found are refused."""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import SqlRefused
from headwater.process.keyed.aggregate import Aggregate
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.operator import Operator


def answered(view: str, operator: Operator, sample: pa.Schema) -> pa.Schema:
    """`sample` are the columns that arrive at its first port."""
    named = {field.name: field.type for field in sample}
    if isinstance(operator, Aggregate):
        named |= {f"count(DISTINCT ...) AS {name}": each.kind for each in operator.distinct for name in each.counts}
        named |= {f"{each.how}(...) AS {each.name}": each.kind for each in operator.extremes}
    enums = [name for name, kind in named.items() if pa.types.is_dictionary(kind)]
    if enums:
        raise SqlRefused(
            view=view,
            construct=f"an ENUM to group, join or compare by ({', '.join(enums)})",
            do="Take its text, by ::VARCHAR, or its place among the others, by enum_code(...)",
        )
    try:
        return operator.step(MemoryState(), {0: sample.empty_table()}, None).rows.schema
    except pa.ArrowNotImplementedError:
        intervals = [name for name, kind in named.items() if pa.types.is_interval(kind)]
        if not intervals:
            raise
        raise SqlRefused(
            view=view,
            construct=f"an INTERVAL to group, join or compare by ({', '.join(intervals)})",
            do="Take its length as a number, such as epoch_us(a) - epoch_us(b), or as text by ::VARCHAR",
        ) from None
