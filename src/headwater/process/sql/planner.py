"""From the text of a view to its plan, or `SqlRefused`, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from headwater.errors import SqlRefused
from headwater.log.spec import TopicSpec
from headwater.process.plan import Plan
from headwater.process.sql.parse import DIALECT, Source, parse
from headwater.process.sql.query import Queries
from headwater.process.sql.relation import Build
from headwater.process.sql.valid_then import with_ties_broken
from headwater.records import is_key_type


def plan_view(view: str, sql: str, inputs: Mapping[str, TopicSpec], *, key: tuple[str, ...] | None = None) -> Plan:
    """The plan of a view's SQL over these topics."""
    query = parse(view, sql, {name: Source(spec.schema, spec.time) for name, spec in inputs.items()})
    oracle = with_ties_broken(query).sql(dialect=DIALECT)
    _check_names(view, query)
    build = Build(view, inputs)
    rel = Queries(build).plan(query)
    schema = build.schema(rel)
    _check_types(view, schema)
    for name in key or ():
        if name not in schema.names:
            raise SqlRefused(view=view, construct=f"no column {name!r} for the key", do=f"Columns: {schema.names}")
    found = key or tuple(name for name in rel.unique or () if is_key_type(schema.field(name).type))
    unique = found if key or len(found) == len(rel.unique or ()) else ()
    return build.plan(rel, sql=sql, key=unique, schema=schema, oracle=oracle)


def _check_names(view: str, query: exp.Query) -> None:
    for place, name in enumerate(query.named_selects, start=1):
        if name.startswith("_"):
            told = f"column {place} has no name" if name.startswith("_col_") else f"column {name!r} begins with _"
            raise SqlRefused(view=view, construct=told, do="Name it: ... AS name (names with _ are Headwater's own)")


def _check_types(view: str, schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_interval(field.type) or pa.types.is_time(field.type) or pa.types.is_null(field.type):
            raise SqlRefused(
                view=view,
                construct=f"column {field.name!r} is of type {field.type}, which topics do not have",
                do="Cast it, such as epoch_us(...) or ...::VARCHAR",
            )
