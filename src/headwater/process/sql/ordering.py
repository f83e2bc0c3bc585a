"""The direction of an item of ORDER BY, in full."""

from __future__ import annotations

from sqlglot import exp


def ordering(ordered: exp.Expr) -> str:
    down = bool(ordered.args.get("desc"))
    first = ordered.args.get("nulls_first")
    return f"{'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
