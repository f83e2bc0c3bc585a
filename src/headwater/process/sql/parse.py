"""The text of a view: parsed, time windows written out, its names resolved, and what has no one answer refused by name
and place. What comes out is plain SQL that DuckDB would answer too, with every column as `alias.column`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify

from headwater.errors import SqlRefused

DIALECT = "duckdb"
SESSION = "sess1on"
LAST_TICK = "last tick"
"""Marks a now() that is not the clock's but that of the log."""

UNSTABLE = {
    "now", "current_timestamp", "current_date", "current_time", "current_localtimestamp", "current_localtime",
    "localtime", "localtimestamp", "today", "get_current_timestamp", "get_current_time", "transaction_timestamp",
    "random", "rand", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "txid_current",
}  # fmt: skip

_NOT_VIEWS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Lateral: ("LATERAL", "Write it as a join, or unnest(...) in the SELECT list"),
    exp.Pivot: ("PIVOT", "Write the columns as aggregates with FILTER (WHERE ...)"),
    exp.TableSample: ("a sample", "Take those with hash(key) % 10 = 0 instead"),
    exp.Into: ("SELECT INTO", "Leave INTO out: the view is where the rows go"),
    exp.Lock: ("FOR UPDATE", "Leave it out"),
}


@dataclass(frozen=True)
class Source:
    """What a name in FROM stands for."""

    schema: pa.Schema
    time: str | None = None


def parse(view: str, sql: str, inputs: Mapping[str, Source]) -> exp.Query:
    """One query over known inputs."""
    from headwater.process.sql import moments, valid_then, windows
    from headwater.process.sql.settling import settled

    query = _statement(view, sql)
    moments.written_out(view, query)
    for node in query.walk():
        _refuse_construct(view, node)
    windows.written_out(view, query)
    valid_then.written_out(view, query, inputs)
    inputs = {**inputs, **{valid_then.HISTORY + name: source for name, source in inputs.items()}}
    _check_tables(view, query, inputs)
    return settled(view, resolved(view, query, inputs))


def resolved(view: str, query: exp.Query, inputs: Mapping[str, Source]) -> exp.Query:
    try:
        qualified = qualify(query, schema=column_types(inputs), dialect=DIALECT, quote_identifiers=False)
        assert isinstance(qualified, exp.Query)
        return pushdown_projections(qualified)
    except OptimizeError as error:
        why = str(error).split(": SELECT")[0]
        raise SqlRefused(view=view, construct=why, do=_columns_of(query, inputs)) from None


def column_types(inputs: Mapping[str, Source]) -> dict[str, object]:
    """As sqlglot's optimizer wants to know them."""
    return {name: {field.name: sql_type(field.type) for field in source.schema} for name, source in inputs.items()}


def _statement(view: str, sql: str) -> exp.Query:
    try:
        statements = [
            statement for statement in sqlglot.parse(_readable(sql), dialect=DIALECT) if statement is not None
        ]
    except (ParseError, TokenError) as error:
        detail = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        raise SqlRefused(
            view=view,
            construct=f"not SQL ({detail.get('description') or error})",
            line=detail.get("line"),
            column=detail.get("col"),
            do="Correct the statement",
        ) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise SqlRefused(view=view, construct="not one SELECT statement", do="Write a view as one SELECT")
    return statements[0]


def _readable(sql: str) -> str:
    """SESSION( under a name of the same length that sqlglot does not take for a word of its own."""
    tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    for token, following in pairwise(tokens):
        if token.text.lower() == "session" and following.text == "(":
            sql = sql[: token.start] + SESSION + sql[token.end + 1 :]
    return sql


def refuse(view: str, node: exp.Expr, construct: str, *, do: str) -> NoReturn:
    placed = next((n for n in node.walk() if "line" in n.meta), None)
    if placed is None:
        raise SqlRefused(view=view, construct=construct, do=do)
    at = placed.meta  # sqlglot's column is that of the last character
    raise SqlRefused(view=view, construct=construct, line=at["line"], column=at["col"] - at["end"] + at["start"], do=do)


def _refuse_construct(view: str, node: exp.Expr) -> None:
    for kind, (name, do) in _NOT_VIEWS.items():
        if isinstance(node, kind):
            refuse(view, node, f"{name} in a view", do=do)
    if isinstance(node, exp.With) and node.args.get("recursive"):
        refuse(view, node, "WITH RECURSIVE cannot be maintained", do="Unroll it to the depth that you need")
    name = function_name(node)
    if name in UNSTABLE and not node.meta.get(LAST_TICK):
        told = {"rand": "random"}.get(name, name)
        refuse(view, node, f"{told}() gives another answer every time", do="Use a column of the record")


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    if isinstance(condition, exp.Paren) and isinstance(condition.this, exp.And | exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


def function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return "session" if node.name == SESSION else str(node.name).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def _check_tables(view: str, query: exp.Query, inputs: Mapping[str, Source]) -> None:
    named = {cte.alias for cte in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            refuse(view, table, "a table function", do="Read a topic by its name, or TUMBLE, HOP or SESSION of one")
        if table.name not in inputs and table.name not in named:
            refuse(
                view,
                table,
                f"there is no topic {table.name!r}",
                do=f"Topics here: {', '.join(name for name in inputs if ' ' not in name)}",
            )


def _columns_of(query: exp.Query, inputs: Mapping[str, Source]) -> str:
    tables = dict.fromkeys(table.name for table in query.find_all(exp.Table) if table.name in inputs)
    return "; ".join(f"{name} has {', '.join(inputs[name].schema.names)}" for name in tables) or "Correct the name"


def sql_type(kind: pa.DataType) -> str:
    """An Arrow type by DuckDB's name."""
    if pa.types.is_integer(kind):
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[kind.bit_width]
        return f"U{name}" if pa.types.is_unsigned_integer(kind) else name
    if pa.types.is_nested(kind):
        return _nested_type(kind)
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    named = {"string": "VARCHAR", "bool": "BOOLEAN", "binary": "BLOB", "date32[day]": "DATE", "float": "FLOAT"}
    return named.get(str(kind), "DOUBLE")


def _nested_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f'"{field.name}" {sql_type(field.type)}' for field in kind) + ")"
    return f"{sql_type(kind.value_type)}[]"
