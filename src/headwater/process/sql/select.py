"""One SELECT, its parts in the order in which SQL means them:

FROM, joins, subqueries in conditions, WHERE, GROUP BY, HAVING, window functions, QUALIFY, SELECT, DISTINCT, LIMIT
"""

from __future__ import annotations

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql.aggregates import is_aggregate
from headwater.process.sql.bounds import bounded
from headwater.process.sql.grouping import grouped
from headwater.process.sql.ordering import ordering
from headwater.process.sql.parse import refuse
from headwater.process.sql.relation import Rel
from headwater.process.sql.scope import Scope
from headwater.process.sql.sessions import grouped_sessions
from headwater.process.sql.settling import own
from headwater.process.sql.sources import from_clause
from headwater.process.sql.subqueries import scalar_queries
from headwater.process.sql.windowing import windowed


def plan_select(scope: Scope) -> Rel:
    select = scope.select
    is_grouped = select.args.get("group") is not None or any(
        is_aggregate(node) for part in scope.answers() for node in own(part)
    )
    in_sessions = grouped_sessions(scope) if is_grouped else None
    if in_sessions is not None:
        rel = in_sessions
    else:
        rel = from_clause(scope)
        if is_grouped:
            rel = grouped(scope, rel)
    for part in scope.answers():
        rel = scalar_queries(scope, rel, part)
    if is_grouped:
        having = select.args.get("having")
        if having is not None:
            rel = scope.filtered(rel, having.this)
    elif select.args.get("having") is not None:
        refuse(scope.view, select.args["having"], "HAVING without GROUP BY", do="Write WHERE")
    rel = windowed(scope, rel)
    if select.args.get("qualify") is not None:
        rel = scope.filtered(rel, select.args["qualify"].this)
    rel, order = _selected(scope, rel)
    if select.args.get("distinct") is not None:
        rel = scope.queries.distinct(rel)
    return scope.queries.limited(select, rel, order)


def _selected(scope: Scope, rel: Rel) -> tuple[Rel, list[tuple[str, str]]]:
    names = [item.alias_or_name for item in scope.select.expressions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        refuse(scope.view, scope.select, f"two columns are called {twice!r}", do="Name one otherwise: ... AS other")
    columns = [(name, scope.text(item.unalias())) for name, item in zip(names, scope.select.expressions, strict=True)]
    order: list[tuple[str, str]] = []
    hidden: list[tuple[str, str]] = []
    limited = scope.select.args.get("limit") is not None or scope.select.args.get("offset") is not None
    if scope.select.args.get("order") is not None and limited:
        for ordered in scope.select.args["order"].expressions:
            node = ordered.this
            text = scope.text(node)
            name = node.name if isinstance(node, exp.Column) and not node.table and node.name in names else None
            name = name or next((known for known, given in columns if given == text), None)
            if name is None:
                name = scope.queries.fresh("o")
                hidden.append((name, text))
            order.append((name, ordering(ordered)))
    if hidden:
        if scope.select.args.get("distinct") is not None:
            refuse(scope.view, scope.select.args["order"], "DISTINCT ordered by what is not selected", do="Select it")
        shown = rel.project([*columns, *hidden])
        first = scope.queries.limited(scope.select, shown, order)
        scope.select.set("limit", None)
        scope.select.set("offset", None)
        return first.project((name, duck.quoted(name)) for name in names), []
    return bounded(rel, rel.project(columns), dict(zip(names, scope.select.expressions, strict=True))), order
