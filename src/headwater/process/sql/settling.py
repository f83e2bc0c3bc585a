"""What SQL leaves open, settled: ties are broken by all columns that are seen, so that any two answers are the same."""

from __future__ import annotations

from sqlglot import exp

from headwater.process.sql.parse import function_name, refuse

BY_PEERS = {"rank", "dense_rank", "percent_rank", "cume_dist", "rankdense"}
"""Window functions that rows which tie share: nothing is open there."""
_ORDERED = (exp.ArrayAgg, exp.GroupConcat, exp.First, exp.Last, exp.Mode, exp.ArgMax, exp.ArgMin)
"""Aggregates whose answer depends on the order of rows, unless they are told one."""


def settled(view: str, query: exp.Query) -> exp.Query:
    for select in list(query.find_all(exp.Select)):
        _named_windows(select)
        _group_by_all(select)
        _distinct_on(view, select)
    for node in list(query.find_all(exp.AnyValue)):
        whole: exp.Expr = node.parent if isinstance(node.parent, exp.IgnoreNulls) else node
        whole.replace(exp.Min(this=node.this))
    for ordered in list(query.find_all(*_ORDERED)):
        _settle_aggregate(ordered)
    for limited in list(query.find_all(exp.Query)):
        _settle_limit(limited)
    for select in list(query.find_all(exp.Select)):
        seen = _seen(select)
        for window in [node for node in own(select) if isinstance(node, exp.Window)]:
            _settle(window, seen)
    return query


def _settle_limit(query: exp.Query) -> None:
    """The first rows: of those that tie, by all columns."""
    if query.args.get("limit") is None and query.args.get("offset") is None:
        return
    order = query.args.get("order") or exp.Order(expressions=[])
    named = {each.this.name for each in order.expressions if isinstance(each.this, exp.Column)}
    more = [exp.Ordered(this=exp.column(name), nulls_first=False) for name in query.named_selects if name not in named]
    query.set("order", exp.Order(expressions=[*order.expressions, *more]))


def _settle_aggregate(node: exp.Expr) -> None:
    """The order of a list, the first of several, the most frequent of equally frequent ones: by the values."""
    if isinstance(node.parent, exp.Window | exp.IgnoreNulls | exp.RespectNulls) or node.find(exp.Order) is not None:
        return
    last = next(name for name in ("separator", "expression", "this") if node.args.get(name) is not None)
    by = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    ordered = exp.Ordered(this=by.copy(), nulls_first=False)
    node.set(last, exp.Order(this=node.args[last], expressions=[ordered]))


def own(select: exp.Expr) -> list[exp.Expr]:
    """The nodes of a SELECT that are not those of a query inside of it."""
    return list(select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select))


def _seen(select: exp.Select) -> list[exp.Expr]:
    """The columns that the SELECT uses, or what it groups by: rows that agree in them cannot be told apart."""
    group = select.args.get("group")
    if group is not None and group.expressions:
        return [each.copy() for each in group.expressions]
    found: dict[str, exp.Expr] = {}
    for node in own(select):
        if isinstance(node, exp.Column) and node.table:
            found.setdefault(node.sql("duckdb"), node.copy())
    return [found[name] for name in sorted(found)]


def _settle(window: exp.Window, seen: list[exp.Expr]) -> None:
    if function_name(window.this) in BY_PEERS:
        return
    spec = window.args.get("spec")
    by_rows = spec is not None and spec.args.get("kind") == "ROWS"
    ranked = function_name(window.this) in (
        "row_number",
        "rownumber",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
    )
    order = window.args.get("order")
    if not (by_rows or ranked or (spec is not None and spec.args.get("kind") == "GROUPS")):
        return
    if order is None:
        order = exp.Order(expressions=[])
        window.set("order", order)
    known = {each.this.sql("duckdb") for each in order.expressions if isinstance(each, exp.Ordered)}
    more = [exp.Ordered(this=each.copy(), nulls_first=False) for each in seen if each.sql("duckdb") not in known]
    order.set("expressions", [*order.expressions, *more])


def _named_windows(select: exp.Select) -> None:
    """OVER w is what w stands for."""
    named = {window.name: window for window in select.args.get("windows") or []}
    for node in own(select):
        if isinstance(node, exp.Window) and node.alias and node.alias in named and node.args.get("this") is not None:
            meant = named[node.alias]
            if node is meant:
                continue
            node.set("alias", None)
            for part in ("partition_by", "order", "spec"):
                if meant.args.get(part):
                    value = meant.args[part]
                    node.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    select.set("windows", None)


def _group_by_all(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None or not group.args.get("all"):
        return
    from headwater.process.sql.aggregates import is_aggregate

    plain = [
        item.unalias().copy() for item in select.expressions if not any(is_aggregate(node) for node in item.walk())
    ]
    select.set("group", exp.Group(expressions=plain))


def _distinct_on(view: str, select: exp.Select) -> None:
    """The first row of each: as a window function says it."""
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") is None:
        return
    if select.args.get("group") or select.args.get("limit"):
        refuse(view, select, "DISTINCT ON with GROUP BY or LIMIT", do="Write row_number() OVER (...) = 1 in QUALIFY")
    by_name = {item.alias_or_name: item.unalias() for item in select.expressions}

    def meant(node: exp.Expr) -> exp.Expr:
        moved: exp.Expr = node.transform(
            lambda part: (
                by_name[part.name].copy()
                if isinstance(part, exp.Column) and not part.table and part.name in by_name
                else part
            )
        )
        return moved

    on = distinct.args["on"]
    keys = [meant(each.copy()) for each in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    keys = [each.this if isinstance(each, exp.Paren) else each for each in keys]
    order = select.args.get("order")
    window = exp.Window(
        this=exp.RowNumber(),
        partition_by=keys,
        order=exp.Order(expressions=[meant(each.copy()) for each in order.expressions]) if order else None,
        over="OVER",
    )
    select.set("distinct", None)
    select.set("order", None)
    condition: exp.Expr = exp.EQ(this=window, expression=exp.Literal.number(1))
    qualify = select.args.get("qualify")
    select.set("qualify", exp.Qualify(this=exp.and_(qualify.this, condition) if qualify else condition))
