"""`rank <= 10` over rows that are only added: those further behind never come back, and need not be kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql.relation import Rel


def kept_first(filtered: Rel, rel: Rel, condition: exp.Expr, text: Callable[[exp.Expr], str]) -> Rel:
    """`filtered` is `rel` under that condition: if it asks for the first ranks, with only those rows kept as state."""
    lazy = rel.lazy
    if lazy is None or lazy.rank_over is None or not isinstance(condition, exp.LTE | exp.LT | exp.EQ):
        return filtered
    column, value = text(condition.left).strip('"'), condition.right
    if column not in rel.ranks or not isinstance(value, exp.Literal) or not value.name.isdigit():
        return filtered
    most = int(value.name) - isinstance(condition, exp.LT)
    if isinstance(condition, exp.EQ) and most != 1:
        return filtered
    rank = rel.ranks[column]
    names = duck.columns(lazy.inputs[0][0].columns)
    first = f"WHERE {duck.quoted(rank)} <= {most}"
    kept = replace(lazy, keep=f"SELECT {names} FROM ({lazy.rank_over}) {first}", rank_over=None)
    if lazy.order is not None:  # what will answer only those, so that nobody has to look for others
        filtered, kept = rel, replace(kept, sql=f"SELECT * FROM ({lazy.sql}) {first}", top=(rank, most))
    return replace(filtered, parts=tuple(replace(part, origin=kept) for part in filtered.parts))
