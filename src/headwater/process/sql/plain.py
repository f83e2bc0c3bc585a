"""Linear queries that only choose and rename columns: Arrow does that without touching a row, and without DuckDB."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp

from headwater.process.plan import CHANGES, ONE
from headwater.records import WEIGHT

_MORE = ("where", "group", "having", "qualify", "order", "limit", "offset", "distinct", "joins", "with_", "with")


@lru_cache(maxsize=256)  # a plan asks for the same query several times
def plain_columns(sql: str) -> tuple[tuple[str, str], ...] | None:
    """Each column's name and that of the column of `changes` it is; None if the query does more than that."""
    found = _columns(sqlglot.parse_one(sql, dialect="duckdb"))
    return tuple(found.items()) if found else None


def _columns(query: exp.Expr) -> dict[str, str] | None:
    """As above; none at all stands for all of `changes` as they are."""
    if not isinstance(query, exp.Select) or any(query.args.get(each) for each in _MORE):
        return None
    source = query.args["from_" if "from_" in query.args else "from"].this
    known: dict[str, str] | None = {}
    if isinstance(source, exp.Subquery):
        known = _columns(source.this)
    elif not (isinstance(source, exp.Table) and source.name == CHANGES):
        return None
    if known is None:
        return None
    if not known and _is_all(query.expressions):
        return {}
    found: dict[str, str] = {}
    for each in query.expressions:
        if known and _is_all([each]):
            found |= known
            continue
        value = each.unalias()
        if each.alias_or_name == WEIGHT and value.sql("duckdb") == "CAST(1 AS BIGINT)":
            found[WEIGHT] = ONE
        elif isinstance(value, exp.Column) and (not known or value.name in known):
            found[each.alias_or_name] = known[value.name] if known else value.name
        else:
            return None
    return found


def _is_all(chosen: list[exp.Expr]) -> bool:
    return len(chosen) == 1 and isinstance(chosen[0], exp.Star) and not any(chosen[0].args.values())
