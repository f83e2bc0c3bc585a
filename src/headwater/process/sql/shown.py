"""Queries over an operator's answer recognised where they only choose columns, or show a sum of nothing as null."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp

from headwater.process.keyed.shown import Column, Shown
from headwater.process.plan import ONE
from headwater.process.sql.parse import DIALECT
from headwater.process.sql.plain import plain_columns


@lru_cache(maxsize=256)
def shown_by(sql: str) -> Shown | None:
    """None if the query is another one."""
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    source = query.args.get("from_" if "from_" in query.args else "from")
    if not isinstance(query, exp.Select) or source is None or not isinstance(source.this, exp.Subquery):
        return None
    known = dict(plain_columns(source.this.this.sql(DIALECT)) or ())
    if any(value for name, value in query.args.items() if name not in ("expressions", "from", "from_", "kind")):
        return None
    columns = [_column(item.unalias(), item.alias_or_name, known) for item in query.expressions]
    return Shown(tuple(each for each in columns if each is not None)) if None not in columns else None


def _column(node: exp.Expr, name: str, known: dict[str, str]) -> Column | None:
    """A column, or CASE WHEN count > 0 THEN CAST(column AS DECIMAL(38, 0)) END."""
    over: str | None = None
    if (
        isinstance(node, exp.Case)
        and node.this is None
        and node.args.get("default") is None
        and len(node.args["ifs"]) == 1
    ):
        (only,) = node.args["ifs"]
        condition, node = only.this, only.args["true"]
        if not isinstance(condition, exp.GT) or condition.expression.sql() != "0":
            return None
        over = _known(condition.this, known)
        if over is None:
            return None
    scale: int | None = None
    if type(node) is exp.Cast:
        if node.to.sql(DIALECT) != "DECIMAL(38, 0)":
            return None
        scale, node = 0, node.this
    of = _known(node, known)
    return Column(name, of, over, scale) if of is not None else None


def _known(node: exp.Expr, known: dict[str, str]) -> str | None:
    of = known.get(node.name) if isinstance(node, exp.Column) and not node.table else None
    return of if of != ONE else None
