"""Spans of time in SQL, in µs."""

from __future__ import annotations

import duckdb
from sqlglot import exp

from headwater.process import duck
from headwater.process.sql.parse import DIALECT


def micros(span: exp.Expr) -> int | None:
    """The length of a constant INTERVAL; None if it is none, or is not the same everywhere, as months are not."""
    if span.find(exp.Column, exp.Query) is not None:
        return None
    text = span.sql(dialect=DIALECT)
    text = f"INTERVAL {text}" if isinstance(span, exp.Literal) else text
    try:
        told = duck.run(
            f"SELECT (epoch({text}) * 1000000)::BIGINT AS us, datepart('month', {text}) AS months,"
            f" datepart('year', {text}) AS years"
        )
    except duckdb.Error:
        return None
    row = told.to_pylist()[0]
    return None if row["months"] or row["years"] or row["us"] is None else int(row["us"])


def shifted(node: exp.Expr, of: type[exp.Expr] = exp.Column) -> tuple[exp.Expr, int] | None:
    """`x`, `x + INTERVAL ...` or `x - INTERVAL ...`, where x is of that kind: x, and by how much."""
    if isinstance(node, exp.Paren):
        return shifted(node.this, of)
    if isinstance(node, of):
        return node, 0
    if isinstance(node, exp.Add | exp.Sub):
        inner, span = shifted(node.left, of), micros(node.right)
        if inner is not None and span is not None:
            return inner[0], inner[1] + (span if isinstance(node, exp.Add) else -span)
    return None
