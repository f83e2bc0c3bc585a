"""Queries inside of conditions and values: IN and EXISTS become semi and anti joins, values become columns."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from headwater.process import duck
from headwater.process.sql import aggregates
from headwater.process.sql.aggregates import Asked, is_grouped
from headwater.process.sql.joins import Equality, join
from headwater.process.sql.parse import DIALECT, conjuncts, refuse, sql_type
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
        if negated:
            return _not_in(scope, rel, inner, query)
        return _matched(scope, rel, inner, query, [inner.this], negated=False)
    rel = scalar_queries(scope, rel, part)
    return scope.filtered(rel, part)


def _matched(scope: Scope, rel: Rel, node: exp.Expr, query: exp.Expr, tested: list[exp.Expr], *, negated: bool) -> Rel:
    inner, outer = _correlated(scope, query)
    name = scope.queries.fresh("q")
    if tested and isinstance(inner, exp.Select) and len(inner.expressions) != 1:
        refuse(scope.view, node, "IN over a query of several columns", do="Select one column")
    equal: list[tuple[exp.Expr, exp.Expr]] = []
    others: list[exp.Expr] = []
    own_names = own_tables(inner)
    for part in outer:
        sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
        mine = [side for side in sides if tables(side) <= own_names and tables(side)]
        its = [side for side in sides if not tables(side) & own_names]
        if len(mine) == 1 and len(its) == 1:
            equal.append((its[0], mine[0]))
        else:
            others.append(part)
    if (equal or others) and isinstance(inner, exp.Select) and is_grouped(inner):
        refuse(scope.view, node, "a correlated subquery with its own aggregation here", do="Join with it instead")
    exposed = _exposed(inner, [mine for _, mine in equal], others, own_names, keep=bool(tested))
    right = scope.queries.plan(exposed, scope.known).renamed(name)
    columns = [f"{name}.{column}" for column in exposed.named_selects]
    pairs = []
    if tested:
        pairs.append(Equality(scope.text(tested[0]), duck.quoted(columns[0]), node))
    for place, (outside, _) in enumerate(equal, start=len(tested)):
        pairs.append(Equality(scope.text(outside), duck.quoted(columns[place]), node))
    on = " AND ".join(_mixed(scope, part, own_names, name) for part in others) or None
    return join(scope.build, rel, right, "anti" if negated else "semi", pairs, on, node)


def _exposed(
    inner: exp.Expr, keys: list[exp.Expr], others: list[exp.Expr], own_names: set[str], *, keep: bool
) -> exp.Query:
    """The subquery with the columns by which it is tied to the outer one."""
    if not isinstance(inner, exp.Select):
        assert isinstance(inner, exp.Query)
        return inner
    shown = inner.copy()
    items = list(shown.expressions) if keep else []
    items += [exp.alias_(key.copy(), f"k{place}") for place, key in enumerate(keys)]
    wanted = {
        f"{column.table}_{column.name}": column
        for part in others
        for column in part.find_all(exp.Column)
        if column.table in own_names
    }
    items += [exp.alias_(column.copy(), f"o_{label}") for label, column in wanted.items()]
    if not items:
        items = [exp.alias_(exp.Literal.number(1), "one")]
    if not is_grouped(inner):
        shown.set("distinct", None)
    shown.set("expressions", items)
    for name in ("order", "limit"):
        if not keep:
            shown.set(name, None)
    return shown


def _mixed(scope: Scope, part: exp.Expr, own_names: set[str], name: str) -> str:
    def moved(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.table in own_names:
            return exp.column(exp.to_identifier(f"{name}.o_{each.table}_{each.name}", quoted=True))
        return each

    return f"({scope.text(part.copy().transform(moved))})"


def _not_in(scope: Scope, rel: Rel, node: exp.Expr, query: exp.Expr) -> Rel:
    """x NOT IN q: no row of q is x, and either x and all of q are known, or q is empty."""
    _, outer = _correlated(scope, query)
    if outer:
        refuse(scope.view, node, "NOT IN over a correlated subquery", do="Write NOT EXISTS (... WHERE a = b)")
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
    inner, outer = _correlated(scope, node.this)
    name = scope.queries.fresh("q")
    if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
        refuse(scope.view, node, "a subquery of several columns as a value", do="Select one value")
    aggregated = is_grouped(inner) and inner.args.get("group") is None
    single = aggregated or (inner.args.get("limit") is not None and inner.args["limit"].expression.name == "1")
    if not single:
        refuse(scope.view, node, "a subquery as a value that may have several rows", do="Select max(...) or the like")
    if outer and not aggregated:
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


def _correlated(scope: Scope, query: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
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
