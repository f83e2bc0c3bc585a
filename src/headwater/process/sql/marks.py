"""IN and EXISTS anywhere in a condition, under OR or NOT: as columns that say whether they hold.

Each becomes a join with the subquery's different values, which marks the rows that match; where it matters whether IN
is false or unknown, also with how many values there are, and how many of them are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql import aggregates
from headwater.process.sql.aggregates import Asked
from headwater.process.sql.correlation import exposed, tied, values_of
from headwater.process.sql.joins import Equality, join
from headwater.process.sql.parse import refuse
from headwater.process.sql.relation import Rel
from headwater.process.sql.scope import Scope
from headwater.process.sql.settling import own

_ALL, _KNOWN, _MATCHED = "all", "known", "matched"


def marked(scope: Scope, rel: Rel, part: exp.Expr) -> Rel:
    """With a column for each IN or EXISTS of the condition that has a query."""
    for node in own(part):
        if isinstance(node, exp.Exists):
            rel = _mark(scope, rel, _Asked(node, node.this, [], only_true=True))
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            rel = _mark(scope, rel, _Asked(node, node.args["query"], values_of(node), only_true=_only_true(node, part)))
    return rel


@dataclass(frozen=True)
class _Asked:
    node: exp.Expr
    query: exp.Expr
    tested: list[exp.Expr]
    only_true: bool
    """Whether false and unknown come to the same there."""


def _mark(scope: Scope, rel: Rel, asked: _Asked) -> Rel:
    found = tied(scope, asked.node, asked.query)
    if found.others:
        refuse(
            scope.view, asked.node, "a correlation that is not an equality, here", do="Write it in WHERE, joined by AND"
        )
    if len(asked.tested) > 1 and not asked.only_true:
        refuse(scope.view, asked.node, "IN over several columns under NOT", do="Write NOT EXISTS (... WHERE a = b)")
    rows = scope.queries.plan(exposed(found, keep=bool(asked.tested)), scope.known)
    name = scope.queries.fresh("q")
    outside = [*asked.tested, *(its for its, _ in found.equal)]
    if not outside:
        rel = _counted(scope, rel, rows, name, asked, [])
        scope.replaced.append((asked.node.copy(), f'("{name}.{_ALL}" > 0)'))
        return rel
    values = scope.queries.distinct(rows)
    one = values.project([*((f"{name}.{x}", duck.quoted(x)) for x in values.columns), (f"{name}.{_MATCHED}", "true")])
    pairs = [
        Equality(scope.text(each), duck.quoted(f"{name}.{column}"), asked.node)
        for each, column in zip(outside, rows.columns, strict=False)
    ]
    rel = join(scope.build, rel, one, "left", pairs, None, asked.node)
    answer = f'coalesce("{name}.{_MATCHED}", false)'
    if not asked.only_true:
        counts = scope.queries.fresh("q")
        rel = _counted(scope, rel, rows, counts, asked, pairs[len(asked.tested) :])
        some = f'coalesce("{counts}.{_ALL}", 0)'
        unknown = f'({scope.text(asked.tested[0])}) IS NULL OR {some} <> coalesce("{counts}.{_KNOWN}", 0)'
        answer = f"CASE WHEN {answer} THEN true WHEN {some} = 0 THEN false WHEN {unknown} THEN NULL ELSE false END"
    scope.replaced.append((asked.node.copy(), f"({answer})"))
    return rel


def _counted(scope: Scope, rel: Rel, rows: Rel, name: str, asked: _Asked, pairs: list[Equality]) -> Rel:
    """With how many values the subquery has for each row, and how many of them are not null."""
    value = duck.quoted(rows.columns[0])
    keys = rows.columns[len(asked.tested) :] if pairs else ()
    counted, made = aggregates.group(
        scope.build,
        rows.project([("x", value), *((key, duck.quoted(key)) for key in keys)]),
        keys,
        [
            Asked(exp.Count(this=exp.Star()), "count(*)", None, None, _ALL),
            Asked(exp.Count(this=exp.column("x")), "count(x)", "x", None, _KNOWN),
        ],
    )
    shown = [
        *((f"{name}.{key}", duck.quoted(key)) for key in keys),
        *((f"{name}.{n}", made[n]) for n in (_ALL, _KNOWN)),
    ]
    equal = [
        Equality(pair.left, duck.quoted(f"{name}.{key}"), asked.node) for pair, key in zip(pairs, keys, strict=True)
    ]
    return join(scope.build, rel, counted.project(shown), "left", equal, None, asked.node)


def _only_true(node: exp.Expr, part: exp.Expr) -> bool:
    """Whether nothing but AND and OR stands between it and the whole condition."""
    while node is not part:
        node = node.parent or part
        if not isinstance(node, exp.And | exp.Or | exp.Paren):
            return False
    return True
