"""A question as a query of SQLite, which finds keys by their index; values go beside it, as SQLite has them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import apsw
import pyarrow as pa

from headwater.serve.condition import Among, Compare, Condition, IsNull, Joined, Not
from headwater.serve.question import Question

DECIMAL = "headwater_decimal"
_SIGN = -(2**63)
Plain = Callable[[str, Any], Any]
"""A column's value as SQLite has it."""


def select(asked: Question, schema: pa.Schema, plain: Plain) -> tuple[str, list[Any]]:
    """The query over the table `rows`, and the values for its question marks."""
    given: list[Any] = []
    names = ", ".join(quoted(name) for name in asked.columns or schema.names)
    query = f"SELECT {names} FROM rows"
    if asked.where is not None:
        query += f" WHERE {_condition(asked.where, schema, plain, given)}"
    if asked.order_by:
        order = (f"{_ordered(name, schema)} {'DESC' if down else 'ASC'} NULLS LAST" for name, down in asked.order_by)
        query += f" ORDER BY {', '.join(order)}"
    given.append(-1 if asked.limit is None else asked.limit)
    return f"{query} LIMIT ?", given


def learn_decimals(connection: apsw.Connection) -> None:
    """Decimals rest as text: told to SQLite, they compare as the numbers they are."""

    def compared(one: str, other: str) -> int:
        left, right = Decimal(one), Decimal(other)
        return (left > right) - (left < right)

    connection.create_collation(DECIMAL, compared)


def _condition(condition: Condition, schema: pa.Schema, plain: Plain, given: list[Any]) -> str:
    match condition:
        case IsNull(column):
            return f"{quoted(column)} IS NULL"
        case Compare(column, op, value):
            told = plain(column, value)
            if op in ("=", "<>"):
                given.append(told)
                return f"{quoted(column)} {op} ?"
            unsigned = pa.types.is_uint64(schema.field(column).type)
            given.append(told + (_SIGN if told >= 0 else -_SIGN) if unsigned else told)
            return f"{_ordered(column, schema)} {op} ?"
        case Among(column, values):
            given += [plain(column, value) for value in values]
            return f"{quoted(column)} IN ({', '.join('?' * len(values))})"
        case Not(part):
            return f"NOT ({_condition(part, schema, plain, given)})"
        case Joined(how, parts):
            inner = [f"({_condition(part, schema, plain, given)})" for part in parts]
            return f" {how} ".join(inner) or ("TRUE" if how == "AND" else "FALSE")


def _ordered(column: str, schema: pa.Schema) -> str:
    kind = schema.field(column).type
    if pa.types.is_decimal(kind):
        return f"{quoted(column)} COLLATE {DECIMAL}"
    if pa.types.is_uint64(kind):  # they rest as their bits: with the first one turned, they compare as they should
        return f"((~({quoted(column)} & {_SIGN})) & ({quoted(column)} | {_SIGN}))"
    return quoted(column)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
