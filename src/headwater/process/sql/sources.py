"""FROM and WHERE: what is read, and joined with what."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql.apart import apart
from headwater.process.sql.joins import Equality, Kind, as_of, join
from headwater.process.sql.moments import speaks_of_now
from headwater.process.sql.parse import conjuncts, refuse
from headwater.process.sql.relation import Rel
from headwater.process.sql.scope import Scope, has_query, outer_tables, tables
from headwater.process.sql.subqueries import where_query
from headwater.process.sql.valid_then import HISTORY


@dataclass
class _Source:
    alias: str
    rel: Rel
    kind: Kind = "inner"
    on: list[exp.Expr] = field(default_factory=list)
    node: exp.Expr | None = None
    as_of: bool = False


def from_clause(scope: Scope) -> Rel:
    select = scope.select
    source = select.args.get("from_")
    if source is None:
        refuse(scope.view, select, "a view without FROM", do="Read at least one topic")
    sources = [_source(scope, source.this)]
    for node in select.args.get("joins") or []:
        sources.append(_joined(scope, node))
    where = select.args.get("where")
    pool = conjuncts(where.this if where else None)
    nested = [part for part in pool if has_query(part)]
    pool = [part for part in pool if not has_query(part)]
    nested += _queries_in_on(scope, sources)
    nullable = _nullable(sources)
    for each in sources:
        mine = [part for part in pool if tables(part) == {each.alias} and each.alias not in nullable]
        each.rel = scope.filtered(each.rel, *mine)
        pool = [part for part in pool if not any(part is taken for taken in mine)]
    rel = _all_joined(scope, sources, pool)
    for part in nested:
        rel = where_query(scope, rel, part)
    return rel


def _source(scope: Scope, node: exp.Expr) -> _Source:
    alias = node.alias_or_name
    if isinstance(node, exp.Subquery):
        return _Source(alias, scope.queries.plan(node, scope.known).renamed(alias), node=node)
    if not isinstance(node, exp.Table):
        refuse(scope.view, node, f"{type(node).__name__.upper()} in FROM", do="Read a topic by its name")
    if node.name in scope.known:
        return _Source(alias, scope.known[node.name]().renamed(alias), node=node)
    topic = node.name.removeprefix(HISTORY)
    return _Source(alias, _scan(scope, topic, alias, history=topic != node.name), node=node)


def _scan(scope: Scope, topic: str, alias: str, *, history: bool) -> Rel:
    spec = scope.build.inputs[topic]
    lowered = {name.lower(): name for name in spec.schema.names}
    root = scope.select
    used = {column.name for column in root.find_all(exp.Column) if column.table == alias}
    names = [lowered[name] for name in lowered if name in used] or [spec.schema.names[0]]
    rel = scope.build.scan(topic, names, history=history)
    return rel.project((f"{alias}.{name.lower()}", duck.quoted(name)) for name in names)


def _joined(scope: Scope, node: exp.Join) -> _Source:
    source = _source(scope, node.this)
    side, kind, method = node.side.upper(), node.kind.upper(), node.method.upper()
    if method == "ASOF":
        source.as_of = True
    elif method:
        refuse(scope.view, node, f"a {method} JOIN", do="Use JOIN ... ON a.x = b.y")
    kinds: dict[str, Kind] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
    if kind in ("SEMI", "ANTI"):
        source.kind = "semi" if kind == "SEMI" else "anti"
    elif kind in ("", "INNER", "CROSS", "OUTER") and side in kinds:
        source.kind = kinds[side]
    else:
        refuse(scope.view, node, f"a {side} {kind} JOIN", do="Use JOIN, LEFT, RIGHT, FULL, SEMI or ANTI JOIN")
    source.on = conjuncts(node.args.get("on"))
    source.node = node
    return source


def _all_joined(scope: Scope, sources: list[_Source], pool: list[exp.Expr]) -> Rel:
    """From left to right; of inner joins the next one that an equality ties to what is there.

    A condition of WHERE (`pool`) may be asked as soon as its columns are there, unless a RIGHT or FULL JOIN is yet to
    come: rows that this one adds have to pass it, too.
    """
    first, *waiting = sources
    rel, there = first.rel, {first.alias}
    early: list[exp.Expr] = []
    while waiting:
        run = list(itertools.takewhile(lambda each: each.kind == "inner" and not each.as_of, waiting))
        if all(other.kind not in ("right", "full") for other in waiting):
            early, pool = (
                [*early, *(part for part in pool if not speaks_of_now(part))],
                list(filter(speaks_of_now, pool)),
            )
        free = [*early, *(part for each in run for part in each.on)]
        nearest = next((each for each in run if any(_equality(scope, part, there, each.alias) for part in free)), None)
        each = nearest or waiting[0]
        waiting.remove(each)
        conditions = list(each.on)
        if each.kind == "inner" and not each.as_of:
            for other in run:
                if other is not each:
                    mine = [part for part in other.on if tables(part) <= {*there, each.alias}]
                    other.on = [part for part in other.on if not any(part is taken for taken in mine)]
                    conditions += mine
            usable = [part for part in early if each.alias in tables(part) and tables(part) <= {*there, each.alias}]
            late = [part for part in conditions if not tables(part) <= {*there, each.alias}]
            early = [*(part for part in early if not any(part is taken for taken in usable)), *late]
            conditions = [part for part in conditions if not any(part is other for other in late)] + usable
        rel = _join(scope, rel, there, each, conditions)
        if each.kind not in ("semi", "anti"):
            there.add(each.alias)
    return scope.filtered(rel, *early, *pool)


def _join(scope: Scope, rel: Rel, there: set[str], each: _Source, conditions: list[exp.Expr]) -> Rel:
    assert each.node is not None
    nested = next((part for part in conditions if has_query(part)), None)
    if nested is not None:
        refuse(scope.view, nested, "a subquery in ON", do="Write it as a join of its own, or in WHERE")
    equal, others = [], []
    right = each.rel
    for part in conditions:
        pair = _equality(scope, part, there, each.alias)
        if pair is not None:
            equal.append(pair)
        elif tables(part) == {each.alias} and each.kind in ("inner", "left", "semi", "anti") and not each.as_of:
            right = scope.filtered(right, part)
        elif tables(part) <= there and tables(part) and each.kind in ("inner", "semi", "right") and not each.as_of:
            rel = scope.filtered(rel, part)
        else:
            others.append(part)
    if each.as_of:
        return _as_of(scope, rel, right, there, each, equal, others)
    on = " AND ".join(f"({scope.text(part)})" for part in others) or None
    return join(scope.build, rel, right, each.kind, equal, on, each.node, apart(rel, right, conditions))


def _as_of(
    scope: Scope, rel: Rel, right: Rel, there: set[str], each: _Source, equal: list[Equality], others: list[exp.Expr]
) -> Rel:
    assert each.node is not None
    later = None
    flipped = {"GTE": "<=", "GT": "<", "LTE": ">=", "LT": ">"}
    plain = {"GTE": ">=", "GT": ">", "LTE": "<=", "LT": "<"}
    for part in others:
        name = type(part).__name__
        if not isinstance(part, exp.Binary):
            continue
        if name in plain and tables(part.left) <= there and tables(part.right) == {each.alias}:
            later = (scope.text(part.left), plain[name], scope.text(part.right))
        elif name in plain and tables(part.right) <= there and tables(part.left) == {each.alias}:
            later = (scope.text(part.right), flipped[name], scope.text(part.left))
    if later is None or len(others) != 1 or each.kind not in ("inner", "left"):
        refuse(
            scope.view,
            each.node,
            "an ASOF JOIN without one inequality",
            do="Write ON a.key = b.key AND a.at >= b.at",
        )
    return as_of(scope.build, rel, right, outer=each.kind == "left", equal=equal, later=later, node=each.node)


def _equality(scope: Scope, part: exp.Expr, there: set[str], alias: str) -> Equality | None:
    if not isinstance(part, exp.EQ):
        return None
    left, right = tables(part.left), tables(part.right)
    if left and right == {alias} and left <= there:
        return Equality(scope.text(part.left), scope.text(part.right), part)
    if right and left == {alias} and right <= there:
        return Equality(scope.text(part.right), scope.text(part.left), part)
    return None


def _queries_in_on(scope: Scope, sources: list[_Source]) -> list[exp.Expr]:
    """Taken out of ON: those that can as well be asked of one side before the join, and those, which are returned, that
    can as well be asked after all joins."""
    after: list[exp.Expr] = []
    for place, each in enumerate(sources):
        keeps = all(other.kind not in ("right", "full") for other in sources[place + 1 :])
        left = []
        for part in each.on:
            if not has_query(part):
                left.append(part)
            elif each.kind == "inner" and not each.as_of and keeps:
                after.append(part)
            elif outer_tables(part) == {each.alias} and each.kind in ("left", "semi", "anti") and not each.as_of:
                each.rel = where_query(scope, each.rel, part)
            else:
                left.append(part)
        each.on = left
    return after


def _nullable(sources: list[_Source]) -> set[str]:
    """The names whose columns may be null because nothing matched: a condition on them comes after the join."""
    found: set[str] = set()
    for place, each in enumerate(sources):
        if each.kind in ("left", "full") or each.as_of:
            found.add(each.alias)
        if each.kind in ("right", "full"):
            found |= {other.alias for other in sources[:place]}
    return found
