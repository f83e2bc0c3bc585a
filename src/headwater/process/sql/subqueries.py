"""Queries inside of conditions and values: IN and EXISTS become semi and anti joins, values become columns."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from headwater.process import duck
from headwater.process.sql import aggregates
from headwater.process.sql.aggregates import Asked, is_grouped
from headwater.process.sql.correlation import correlated, exposed, tied, values_of
from headwater.process.sql.joins import Equality, join
from headwater.process.sql.marks import marked
from headwater.process.sql.parse import DIALECT, refuse, sql_type
from headwater.process.sql.relation import Rel
from headwater.process.sql.scope import Scope, has_query, own_tables, tables
from headwater.process.sql.settling import own


def where_query(scope: Scope, rel: Rel, part: exp.Expr) -> Rel:
    negated = False
    inner = part
    while isinstance(inner, exp.Not | exp.Paren):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    if isinstance(inner, exp.Exists):
        return _matched(scope, rel, inner, inner.this, [], negated=negated)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None and not has_query(inner.this):
        query = inner.args["query"]
        query = query.this if isinstance(query, exp.Subquery) else query
        tested = values_of(inner)
        if not negated:
            return _matched(scope, rel, inner, query, tested, negated=False)
        if len(tested) == 1 and not correlated(scope, query)[1]:
            return _not_in(scope, rel, inner, query)
    rel = marked(scope, scalar_queries(scope, rel, part), part)
    return scope.filtered(rel, part)


def _matched(scope: Scope, rel: Rel, node: exp.Expr, query: exp.Expr, tested: list[exp.Expr], *, negated: bool) -> Rel:
    found = tied(scope, node, query)
    shown = exposed(found, keep=bool(tested))
    name = scope.queries.fresh("q")
    right = scope.queries.plan(shown, scope.known).renamed(name)
    columns = [duck.quoted(f"{name}.{column}") for column in shown.named_selects]
    outside = [*tested, *(its for its, _ in found.equal)]
    pairs = [Equality(scope.text(each), column, node) for each, column in zip(outside, columns, strict=False)]
    on = " AND ".join(_mixed(scope, part, found.own_names, name) for part in found.others) or None
    return join(scope.build, rel, right, "anti" if negated else "semi", pairs, on, node)


def _mixed(scope: Scope, part: exp.Expr, own_names: set[str], name: str) -> str:
    def moved(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.table in own_names:
            return exp.column(exp.to_identifier(f"{name}.o_{each.table}_{each.name}", quoted=True))
        return each

    return f"({scope.text(part.copy().transform(moved))})"


def _not_in(scope: Scope, rel: Rel, node: exp.Expr, query: exp.Expr) -> Rel:
    """x NOT IN q: no row of q is x, and either x and all of q are known, or q is empty."""
    assert isinstance(query, exp.Query)
    column = query.named_selects[0]
    rows = scope.queries.plan(query, scope.known)
    counted, made = aggregates.group(
        scope.build,
        rows.project([("x", duck.quoted(column))]),
        (),
        [
            Asked(exp.Count(this=exp.Star()), "count(*)", None, None, "all"),
            Asked(exp.Count(this=exp.column("x")), "count(x)", "x", None, "known"),
        ],
    )
    name = scope.queries.fresh("q")
    counts = counted.project([(f"{name}.all", made["all"]), (f"{name}.known", made["known"])])
    rel = join(scope.build, rel, counts, "left", [], None, node)
    tested = scope.text(node.this)
    full = rel.where(f'coalesce("{name}.all", 0) = 0 OR ({tested} IS NOT NULL AND "{name}.all" = "{name}.known")')
    return _matched(scope, full, node, query, [node.this], negated=True)


def scalar_queries(scope: Scope, rel: Rel, holder: exp.Expr) -> Rel:
    """Each scalar subquery in the expression becomes a column."""
    for node in [each for each in own(holder) if isinstance(each, exp.Subquery)]:
        if any(node == known for known, _ in scope.replaced) or isinstance(
            node.parent, exp.From | exp.Join | exp.In | exp.Exists
        ):
            continue
        rel = _scalar(scope, rel, node)
    return rel


def _scalar(scope: Scope, rel: Rel, node: exp.Subquery) -> Rel:
    inner, outer = correlated(scope, node.this)
    name = scope.queries.fresh("q")
    if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
        refuse(scope.view, node, "a subquery of several columns as a value", do="Select one value")
    aggregated = is_grouped(inner) and inner.args.get("group") is None
    single = aggregated or (inner.args.get("limit") is not None and inner.args["limit"].expression.name == "1")
    if not single:
        refuse(scope.view, node, "a subquery as a value that may have several rows", do="Select max(...) or the like")
    if outer and (not aggregated or inner.args.get("offset") is not None):
        refuse(scope.view, node, "a correlated subquery with LIMIT", do="Write arg_max(value, at) instead")
    column = inner.expressions[0].alias_or_name
    own_names = own_tables(inner)
    pairs = []
    for part in outer:
        sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
        mine = [side for side in sides if tables(side) and tables(side) <= own_names]
        its = [side for side in sides if not tables(side) & own_names]
        if len(mine) != 1 or len(its) != 1:
            refuse(scope.view, part, "a correlation that is not an equality", do="Write the subquery as a join")
        pairs.append((its[0], mine[0]))
    shown = inner.copy()
    shown.set(
        "expressions",
        [shown.expressions[0], *(exp.alias_(mine.copy(), f"k{place}") for place, (_, mine) in enumerate(pairs))],
    )
    default = _over_nothing(scope, inner) if pairs else "NULL"
    if pairs:
        shown.set("group", exp.Group(expressions=[mine.copy() for _, mine in pairs]))
    right = scope.queries.plan(shown, scope.known).renamed(name)
    equal = [Equality(scope.text(its), duck.quoted(f"{name}.k{place}"), node) for place, (its, _) in enumerate(pairs)]
    value = duck.quoted(f"{name}.{column}")
    if default != "NULL":
        value = f'CASE WHEN "{name}.k0" IS NULL THEN {default} ELSE {value} END'
    scope.replaced.append((node.copy(), value))
    return join(scope.build, rel, right, "left", equal, None, node)


def _over_nothing(scope: Scope, query: exp.Select) -> str:
    """What a query that aggregates says of no rows at all, as SQL: 0 for a count, NULL for most else."""
    typed = annotate_types(query.copy(), dialect=DIALECT)

    def nothing(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        known = part.type is not None and not part.is_type(exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL)
        return exp.cast(exp.null(), part.type) if known and part.type is not None else exp.null()

    having = query.args.get("having")
    kept = f" HAVING {typed.args['having'].this.transform(nothing).sql(DIALECT)}" if having is not None else ""
    value = typed.expressions[0].unalias().transform(nothing).sql(DIALECT)
    text = f"SELECT {value} AS x FROM (SELECT 1 AS one WHERE false){kept}"
    kind = scope.build.ask(text).field("x").type
    found = duck.run(f"SELECT x::VARCHAR AS x FROM ({text})")["x"].to_pylist()
    if not found or found[0] is None:
        return "NULL"
    if having is not None:
        refuse(scope.view, query, "a correlated subquery with HAVING here", do="Write CASE WHEN ... THEN ... END")
    return f"{exp.Literal.string(found[0]).sql(DIALECT)}::{sql_type(kind)}"
