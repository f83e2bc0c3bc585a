"""What is asked of a view: which rows, in which order, how many, which columns; and the answer from rows in Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import BadCondition
from headwater.serve.condition import Among, Compare, Condition, IsNull, Joined, Not, Where, column_type, condition_of

OrderBy = str | Sequence[str]


@dataclass(frozen=True)
class Question:
    where: Condition | None = None
    order_by: tuple[tuple[str, bool], ...] = ()
    """Columns, each with whether it descends; nulls come last either way."""
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    """None: all."""


def question(
    schema: pa.Schema,
    key: Sequence[str],
    *,
    where: Where | None = None,
    order_by: OrderBy | None = None,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
) -> Question:
    """As it was asked, checked against the columns. Rows that are equal in the order follow the key, so that the same
    question has the same answer."""
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise BadCondition(what=f"limit is {limit!r}", do="Give a number from 0 on, or None for all")
    if isinstance(columns, str):
        columns = (columns,)
    for name in columns or ():
        column_type(name, schema)
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise BadCondition(what=f"columns are {list(columns)}", do="Name at least one, each once")
    order = _order(order_by, schema) if order_by else ()
    ties = [(name, False) for name in key if order and name not in dict(order)]
    condition = condition_of(where, schema) if where else None
    return Question(condition, (*order, *ties), limit, tuple(columns) if columns is not None else None)


def _order(order_by: OrderBy, schema: pa.Schema) -> tuple[tuple[str, bool], ...]:
    parts = order_by.split(",") if isinstance(order_by, str) and order_by not in schema.names else order_by
    found = []
    for part in [parts] if isinstance(parts, str) else parts:
        name, _, direction = part.strip().rpartition(" ")
        if part.strip() in schema.names or direction.upper() not in ("ASC", "DESC"):
            name, direction = part.strip(), "ASC"
        name = name.strip()
        if pa.types.is_nested(column_type(name, schema)):
            raise BadCondition(what=f"column {name!r} is nested and has no order", do="Order by another column")
        found.append((name, direction.upper() == "DESC"))
    return tuple(found)


def answered(rows: pa.Table, asked: Question) -> pa.Table:
    """The answer from all rows, as a store would give it."""
    if asked.where is not None:
        rows = rows.filter(expression(asked.where, rows.schema))
    if asked.order_by:
        rows = rows.take(_sorted(rows, asked.order_by))
    if asked.limit is not None:
        rows = rows.slice(0, asked.limit)
    return rows.select(list(asked.columns)) if asked.columns is not None else rows


def _sorted(rows: pa.Table, order: tuple[tuple[str, bool], ...]) -> Any:
    keys = [(name, "descending" if down else "ascending", "at_end") for name, down in order]
    return pc.sort_indices(rows, sort_keys=keys)


def expression(condition: Condition, schema: pa.Schema) -> pc.Expression:
    match condition:
        case Compare(column, op, value):
            return _compared(pc.field(column), op, pa.scalar(value, schema.field(column).type))
        case IsNull(column):
            return pc.field(column).is_null()
        case Among(column, values):
            found = pc.field(column).isin(pa.array(list(values), schema.field(column).type))
            return pc.if_else(pc.field(column).is_valid(), found, pa.scalar(None, pa.bool_()))
        case Not(part):
            return ~expression(part, schema)
        case Joined(how, parts):
            told = (expression(part, schema) for part in parts)
            return reduce(and_ if how == "AND" else or_, told, pc.scalar(how == "AND"))


def _compared(column: pc.Expression, op: str, value: Any) -> pc.Expression:
    match op:
        case "=":
            return column == value
        case "<>":
            return column != value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
    return column >= value
