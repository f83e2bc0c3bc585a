"""The text of a view: parsed, its names resolved, and everything that is not there yet refused by name and place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify

from headwater.errors import SqlRefused

DIALECT = "duckdb"

UNSTABLE = {"now", "current_timestamp", "current_date", "current_time", "today", "random", "uuid", "gen_random_uuid"}

# construct in the tree -> what to tell
NOT_YET: dict[type[exp.Expr], str] = {
    exp.With: "WITH",
    exp.Subquery: "a subquery",
    exp.SetOperation: "UNION, EXCEPT or INTERSECT",
    exp.Window: "a window function",
    exp.Qualify: "QUALIFY",
    exp.Distinct: "DISTINCT",
    exp.Order: "ORDER BY",
    exp.Limit: "LIMIT",
    exp.Offset: "OFFSET",
    exp.Exists: "EXISTS",
    exp.GroupingSets: "GROUPING SETS",
    exp.Cube: "CUBE",
    exp.Rollup: "ROLLUP",
}


def parse(view: str, sql: str, inputs: Mapping[str, pa.Schema]) -> exp.Select:
    """A SELECT whose every column is `alias.column` of a known input."""
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except (ParseError, TokenError) as error:
        detail = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        raise SqlRefused(
            view=view,
            construct=f"not SQL ({detail.get('description') or error})",
            line=detail.get("line"),
            column=detail.get("col"),
            do="Correct the statement",
        ) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise SqlRefused(view=view, construct="not one SELECT statement", do="Write a view as one SELECT")
    select = statements[0]
    _refuse_constructs(view, select)
    for table in select.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            refuse(view, table, "a table function", do="Read a topic by its name")
        if table.name not in inputs:
            refuse(view, table, f"there is no topic {table.name!r}", do=f"Topics here: {', '.join(inputs)}")
    types: dict[str, object] = {
        name: {field.name: _sql_type(field.type) for field in schema} for name, schema in inputs.items()
    }
    try:
        qualified = qualify(
            select, schema=types, dialect=DIALECT, quote_identifiers=False, validate_qualify_columns=True
        )
    except OptimizeError as error:
        raise SqlRefused(view=view, construct=str(error), do=_columns_of(select, inputs)) from None
    assert isinstance(qualified, exp.Select)
    return qualified


def refuse(view: str, node: exp.Expr, construct: str, *, do: str) -> NoReturn:
    placed = next((n for n in node.walk() if "line" in n.meta), None)
    if placed is None:
        raise SqlRefused(view=view, construct=construct, do=do)
    at = placed.meta  # sqlglot's column is that of the last character
    raise SqlRefused(view=view, construct=construct, line=at["line"], column=at["col"] - at["end"] + at["start"], do=do)


def _refuse_constructs(view: str, select: exp.Select) -> None:
    for node in select.walk():
        for kind, name in NOT_YET.items():
            if isinstance(node, kind) and not (kind is exp.Distinct and isinstance(node.parent, exp.Count)):
                refuse(
                    view, node, f"{name} cannot be maintained yet", do="Leave it out, or filter when you read the view"
                )
        function = (
            node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else ""
        )
        if function.lower() in UNSTABLE:
            refuse(view, node, f"{function.lower()}() gives another answer every time", do="Use a column of the record")


def _columns_of(select: exp.Select, inputs: Mapping[str, pa.Schema]) -> str:
    tables = dict.fromkeys(table.name for table in select.find_all(exp.Table))
    return "; ".join(f"{name} has {', '.join(inputs[name].names)}" for name in tables)


def _sql_type(kind: pa.DataType) -> str:
    named = {"string": "VARCHAR", "bool": "BOOLEAN", "binary": "BLOB", "date32[day]": "DATE", "double": "DOUBLE"}
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    if pa.types.is_unsigned_integer(kind):
        return {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "UBIGINT"}[kind.bit_width]
    if pa.types.is_integer(kind):
        return {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[kind.bit_width]
    return named.get(str(kind), "FLOAT")
