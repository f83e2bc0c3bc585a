"""Grouping queries over queries of one row at a time, as text: what rules that rewrite them step through."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from headwater.process.sql.parse import DIALECT

_LINEAR = {"expressions", "from_", "where"}


def grouping(sql: str) -> exp.Select | None:
    """The query, if it groups rows and does nothing else with them."""
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    return query if isinstance(query, exp.Select) and parts_of(query) - _LINEAR == {"group"} else None


def inner(query: exp.Select) -> exp.Select | None:
    """The query inside of this one, if it speaks of one row at a time."""
    source = query.args["from_"].this
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select):
        return None
    return source.this if parts_of(source) == {"this"} and not parts_of(source.this) - _LINEAR else None


def parts_of(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value}


def columns_in(node: exp.Expr) -> set[str]:
    """The names, in lower case, of all columns that are spoken of; and what they are said to be of, which may be a
    column too, of which they are a field."""
    return {part.name.lower() for column in node.find_all(exp.Column) for part in column.parts}


def column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)
