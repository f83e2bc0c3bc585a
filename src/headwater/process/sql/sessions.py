"""GROUP BY over SESSION(...): if it groups by nothing but the session, sessions are kept instead of their rows.

SESSION is written out as window functions (`windows`), which can be asked anything; they look at all rows of a key
whenever one of them changes. For a plain GROUP BY over rows that are only added, an operator does better.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.aggregate import ROWS
from headwater.process.keyed.sessions import FIRST, LAST, NO_TIME, Sessions
from headwater.process.sql.aggregates import Numbers
from headwater.process.sql.grouping import asked_of, stand_for_groups
from headwater.process.sql.relation import Part, Rel
from headwater.process.sql.scope import Scope
from headwater.process.sql.sources import from_clause
from headwater.process.sql.windows import END, SESSION, SESSIONS, START, Written
from headwater.records import WEIGHT

_TIME = pa.timestamp("us", "UTC")
_SEVERAL = ("grouping_sets", "rollup", "cube", "all")
_WHOLE = ({START}, {END}, {START, END})
"""Either of which tells a key's sessions apart."""


def grouped_sessions(scope: Scope) -> Rel | None:
    """The sessions with their aggregates, where this can be done; else None."""
    found = _only_sessions(scope)
    if found is None:
        return None
    written, alias, source = found
    group = scope.select.args["group"]
    rows = from_clause(replace(scope, select=_over(scope.select, source, alias)))
    time = f"{alias}.{written.time}"
    if not rows.append_only or scope.build.schema(rows).field(time).type != _TIME:
        return None
    asked = asked_of(scope)
    windows = (duck.quoted(f"{alias}.{START}"), duck.quoted(f"{alias}.{END}"))
    numbers = Numbers(scope.build, rows)
    if any(window in each.text for each in asked for window in windows) or not all(map(numbers.add, asked)):
        return None
    if numbers.values or numbers.extremes:
        return None
    keys = tuple(f"{alias}.{key}" for key in written.keys)
    sessions = _kept(scope, rows, numbers, keys, time, written.gap)
    stand_for_groups(
        scope, list(group.expressions), [f"{each.table}.{each.name}" for each in group.expressions], asked, numbers.made
    )
    return sessions


def _only_sessions(scope: Scope) -> tuple[Written, str, exp.Select] | None:
    """What was written out, its alias, and the innermost query, if the SELECT is nothing but a GROUP BY over it."""
    select = scope.select
    source, group = select.args.get("from_"), select.args.get("group")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Subquery) or SESSIONS not in table.this.meta or group is None:
        return None
    written: Written = table.this.meta[SESSIONS]
    other = any(select.args.get(each) for each in ("joins", "where", "laterals", "windows"))
    given = {each.name for each in group.expressions if isinstance(each, exp.Column) and each.table == table.alias}
    plain = len(given) == len(group.expressions) and not any(group.args.get(each) for each in _SEVERAL)
    whole = given - set(written.keys) in _WHOLE and given >= set(written.keys)
    if other or not plain or not whole or scope.build.retain is not None:
        return None
    inner = table.this
    for _ in range(2):
        inner = inner.args["from_"].this.this
    topic = inner.args["from_"].this
    is_topic = isinstance(topic, exp.Table) and topic.name not in scope.known  # whose rows cost nothing to ask for
    return (written, table.alias, inner) if is_topic else None


def _over(select: exp.Select, source: exp.Select, alias: str) -> exp.Select:
    """The SELECT over the rows themselves, without sessions."""
    rows = source.copy()
    rows.set("expressions", [each for each in rows.expressions if SESSION not in each.unalias().meta])
    over = select.copy()
    over.set("from_", exp.From(this=rows.subquery(alias, copy=False)))
    return over


def _kept(scope: Scope, rows: Rel, numbers: Numbers, keys: tuple[str, ...], time: str, gap: int) -> Rel:
    at = f"coalesce(epoch_us({duck.quoted(time)}), {NO_TIME})"
    moments = rows.project([*((name, duck.quoted(name)) for name in rows.columns), (FIRST, at), (LAST, at)])
    numbers.rows = moments
    arriving = numbers.told((*keys, FIRST, LAST))
    schema = numbers.schema(arriving)
    operator = Sessions(schema, keys, gap, tuple(numbers.how))
    made = scope.build.node(operator, [(arriving, keys)], [schema])
    alias = time.rpartition(".")[0]
    shown = {
        **{key: duck.quoted(key) for key in keys},
        f"{alias}.{START}": f"CASE WHEN {FIRST} <> {NO_TIME} THEN make_timestamptz({FIRST}) END",
        f"{alias}.{END}": f"CASE WHEN {LAST} <> {NO_TIME} THEN make_timestamptz({LAST} + {gap}) END",
        ROWS: duck.quoted(ROWS),
        **{name: duck.quoted(name) for name, _ in numbers.how},
    }
    texts = ", ".join(f"{text} AS {duck.quoted(name)}" for name, text in shown.items())
    part = Part(made, f"SELECT {texts}, {WEIGHT} FROM changes")
    unique = (*keys, f"{alias}.{START}", f"{alias}.{END}")
    return Rel(tuple(shown), (part,), False, spread=scope.build.spread_after(arriving, keys), unique=unique)
