"""A table was altered: what its topic can take over, and what is refused, with how to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headwater.errors import SchemaRefused, TableChanged
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.records import schema_of


def altered_topic(
    log: Log, spec: TopicSpec, columns: Sequence[tuple[str, pa.DataType]], *, table: str, retype: Callable[[str], str]
) -> TopicSpec:
    """The topic with these columns: some may have come, types may have widened, that is all. `retype` gives the
    statement that gives a column its type back."""
    wanted = schema_of(pa.schema(columns))
    if wanted == spec.schema:
        return spec
    try:
        return log.alter(spec.name, schema=wanted)
    except SchemaRefused as error:
        raise TableChanged(
            table=table,
            topic=spec.name,
            why=f"column {error.column!r} has another type ({error.why})",
            do=undo(table, retype(error.column)),
        ) from None


def column_gone(table: str, sql_name: str, topic: str, gone: str, new: Sequence[str]) -> TableChanged:
    perhaps = f" (renamed to {new[0]!r}?)" if new else ""
    return TableChanged(
        table=table,
        topic=topic,
        why=f"column {gone!r} is gone{perhaps}",
        do=undo(table, f"ALTER TABLE {sql_name} ADD COLUMN {gone} ...;  -- or rename it back"),
    )


def undo(table: str, statement: str) -> str:
    return (
        f"Run: {statement} and then: headwater capture resnapshot NAME {table}. "
        f"Or capture the table as it is now into a new topic: tables={{{table!r}: 'NEW_TOPIC'}}"
    )
