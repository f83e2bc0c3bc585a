"""From the text of a view to its plan, or `SqlRefused`, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from headwater.errors import SqlRefused, UsageError
from headwater.log.spec import TopicSpec
from headwater.process.keyed.hold import Hold
from headwater.process.plan import CHANGES, Plan
from headwater.process.sql.calendar import typed
from headwater.process.sql.moments import by_ticks, speaks_of_now
from headwater.process.sql.parse import DIALECT, Source, parse
from headwater.process.sql.query import Queries
from headwater.process.sql.relation import Build, Part, Rel
from headwater.process.sql.valid_then import with_ties_broken
from headwater.process.ticks import TICKS
from headwater.records import WEIGHT, is_key_type

Emit = Literal["changes", "final"]


def sql_of(view: str, sql: str | Path) -> str:
    """A query as it is, or read from its file."""
    if isinstance(sql, str) and not (sql.endswith(".sql") and " " not in sql and "\n" not in sql):
        return sql
    try:
        return Path(sql).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(what=f"the SQL of view {view!r}: {error}", do="Name a file of text") from None


def plan_view(
    view: str,
    sql: str,
    inputs: Mapping[str, TopicSpec],
    *,
    key: tuple[str, ...] | None = None,
    retain: int | None = None,
    emit: Emit = "changes",
) -> Plan:
    """The plan of a view's SQL over these topics.

    With `retain` (µs), streams bring nothing that is later than that, so windows that are past leave the state. With
    emit="final" rows are held back until then.
    """
    sources = {name: Source(spec.schema, spec.time) for name, spec in inputs.items()}
    query = typed(parse(view, sql, sources), sources)
    oracle = by_ticks(with_ties_broken(query)).sql(dialect=DIALECT)
    _check_names(view, query)
    build = Build(view, {**inputs, TICKS.name: TICKS} if speaks_of_now(query) else inputs, retain)
    rel = Queries(build).plan(query)
    if emit == "final":
        rel = _final(build, rel)
    schema = build.schema(rel)
    _check_types(view, schema)
    for name in key or ():
        if name not in schema.names:
            raise SqlRefused(view=view, construct=f"no column {name!r} for the key", do=f"Columns: {schema.names}")
    found = key or tuple(name for name in rel.unique or () if is_key_type(schema.field(name).type))
    unique = found if key or len(found) == len(rel.unique or ()) else ()
    plan = build.plan(rel, sql=sql, key=unique, schema=schema, oracle=oracle)
    held = next((node.operator for node in plan.nodes if isinstance(node.operator, Hold)), None)
    return replace(plan, final=(held.until, held.wait)) if held is not None else plan


def _final(build: Build, rel: Rel) -> Rel:
    """Held back, each row by the first of its columns that says when it is past."""
    until = next((name for name in rel.columns if name in rel.bounds), None)
    if build.retain is None or until is None:
        raise SqlRefused(
            view=build.view,
            construct="emit='final' without a time after which rows are final",
            do="Say retain='...', and select window_start or window_end of TUMBLE or HOP over a stream with a time",
        )
    rows = build.made(rel)
    schema = build.schema(rows).append(pa.field(WEIGHT, pa.int64()))
    key = rows.spread or rows.columns
    node = build.node(Hold(schema, until, rows.bounds[until] + build.retain), [(rows, key)], [schema])
    return replace(rows, parts=(Part(node, f"FROM {CHANGES}"),), spread=key)


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
