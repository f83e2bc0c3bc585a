"""What ties a subquery to the query around it: equalities, and whatever else its WHERE says of columns outside."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headwater.process.sql.aggregates import is_grouped
from headwater.process.sql.parse import DIALECT, conjuncts, refuse
from headwater.process.sql.scope import Scope, own_tables, tables


@dataclass(frozen=True)
class Tied:
    inner: exp.Expr
    """The subquery without what ties it."""
    equal: list[tuple[exp.Expr, exp.Expr]]
    """Of each equality the side outside and the one inside."""
    others: list[exp.Expr]
    own_names: set[str]


def tied(scope: Scope, node: exp.Expr, query: exp.Expr) -> Tied:
    inner, outer = correlated(scope, query)
    if isinstance(node, exp.In) and isinstance(inner, exp.Query):
        asked, given = len(values_of(node)), len(inner.named_selects)
        if asked != given:
            refuse(scope.view, node, f"IN of {asked} values over a query of {given} columns", do=f"Select {asked}")
    found = Tied(inner, [], [], own_tables(inner))
    for part in outer:
        sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
        mine = [side for side in sides if tables(side) <= found.own_names and tables(side)]
        its = [side for side in sides if not tables(side) & found.own_names]
        if len(mine) == 1 and len(its) == 1:
            found.equal.append((its[0], mine[0]))
        else:
            found.others.append(part)
    if outer and isinstance(inner, exp.Select):
        if is_grouped(inner):
            refuse(scope.view, node, "a correlated subquery with its own aggregation here", do="Join with it instead")
        bounded = isinstance(node, exp.In) and inner.args.get("limit") is not None
        if bounded or inner.args.get("offset") is not None or inner.args.get("qualify") is not None:
            told = "a correlated subquery with LIMIT, OFFSET or QUALIFY here"
            refuse(scope.view, node, told, do="Rank the rows in a query in FROM, and join with it")
    return found


def exposed(found: Tied, *, keep: bool) -> exp.Query:
    """The subquery with the columns by which it is tied to the outer one; with its own before them, or without."""
    inner = found.inner
    if not isinstance(inner, exp.Select):
        assert isinstance(inner, exp.Query)
        return inner
    shown = inner.copy()
    total = is_grouped(inner) and inner.args.get("group") is None  # a row over nothing: that must stay so
    items = list(shown.expressions) if keep or total else []
    items += [exp.alias_(mine.copy(), f"k{place}") for place, (_, mine) in enumerate(found.equal)]
    wanted = {
        f"{column.table}_{column.name}": column
        for part in found.others
        for column in part.find_all(exp.Column)
        if column.table in found.own_names
    }
    items += [exp.alias_(column.copy(), f"o_{label}") for label, column in wanted.items()]
    shown.set("expressions", items or [exp.alias_(exp.Literal.number(1), "one")])
    if not keep:
        for name in ("order", "limit"):
            shown.set(name, None)
    if not is_grouped(inner) and shown.args.get("limit") is None and shown.args.get("offset") is None:
        shown.set("distinct", None)
    return shown


def values_of(node: exp.In) -> list[exp.Expr]:
    """What is asked for: one value, or several of (a, b) IN (SELECT x, y ...)."""
    tested = node.this.unnest()
    return list(tested.expressions) if isinstance(tested, exp.Tuple) else [node.this]


def correlated(scope: Scope, query: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
    """The subquery without those of its conditions that speak of columns outside of it, and these."""
    query = query.this if isinstance(query, exp.Subquery) else query
    own_names = {table.alias_or_name for table in query.find_all(exp.Table, exp.Subquery)}
    if not isinstance(query, exp.Select):
        return query, []
    where = query.args.get("where")
    inside = query.copy()
    parts = conjuncts(where.this if where else None)
    outer = [part for part in parts if not tables(part) <= own_names]
    left = [part.copy() for part in parts if not any(part is each for each in outer)]
    inside.set("where", exp.Where(this=exp.and_(*left)) if left else None)
    for column in inside.find_all(exp.Column):
        if column.table and column.table not in own_names:
            refuse(
                scope.view,
                column,
                f"{column.sql(DIALECT)} is of the outer query",
                do="Use it in the subquery's WHERE, joined by AND",
            )
    return inside, outer
