"""A condition written as SQL: columns compared with values, AND, OR, NOT, IN, BETWEEN, IS NULL; all else is refused.

It is read, never passed on: what a store sees is built from the parsed condition, with the values beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headwater.errors import BadCondition
from headwater.serve.condition import Condition, IsNull, Joined, Not, Op, among, column_type, compare

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST = 10_000
_OPS: dict[str, Op] = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_TURNED: dict[Op, Op] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parsed(text: str, schema: pa.Schema) -> Condition:
    import sqlglot
    from sqlglot import errors, exp

    if len(text) > LONGEST:
        raise BadCondition(what=f"the condition has {len(text)} characters", do=f"Use at most {LONGEST}")
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb", into=exp.Condition)
        return _condition(tree, schema)
    except (errors.SqlglotError, RecursionError):
        raise BadCondition(
            what=f"{text!r} is not a condition", do="Write it as after WHERE: n >= 5 AND page = '/a'"
        ) from None


def _condition(tree: exp.Expr, schema: pa.Schema) -> Condition:
    from sqlglot import exp

    match tree:
        case exp.Paren():
            return _condition(tree.this, schema)
        case exp.And() | exp.Or():
            how: Literal["AND", "OR"] = "AND" if isinstance(tree, exp.And) else "OR"
            return Joined(how, tuple(_condition(part, schema) for part in tree.flatten()))
        case exp.Not():
            return Not(_condition(tree.this, schema))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _compared(tree, schema)
    return _of_column(tree, schema)


def _of_column(tree: exp.Expr, schema: pa.Schema) -> Condition:
    """What begins with a column: a list, a range, a null, a truth."""
    from sqlglot import exp

    match tree:
        case exp.Between():
            name = _column(tree.this, schema)
            low, high = (_value(tree.args[part]) for part in ("low", "high"))
            return Joined("AND", (compare(name, ">=", low, schema), compare(name, "<=", high, schema)))
        case exp.In() if tree.expressions:
            return among(_column(tree.this, schema), [_value(each) for each in tree.expressions], schema)
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return IsNull(_column(tree.this, schema))
        case exp.Column() if pa.types.is_boolean(column_type(_column(tree, schema), schema)):
            return compare(_column(tree, schema), "=", True, schema)
    raise _refused(tree)


def _compared(tree: exp.Expr, schema: pa.Schema) -> Condition:
    from sqlglot import exp

    op, one, other = _OPS[tree.key], tree.this, tree.args["expression"]
    if not isinstance(one, exp.Column):
        one, other, op = other, one, _TURNED[op]
    value = _value(other)
    if value is None:
        raise BadCondition(what=f"{tree.sql()} holds for no row", do="Write IS NULL or IS NOT NULL")
    return compare(_column(one, schema), op, value, schema)


def _column(tree: exp.Expr, schema: pa.Schema) -> str:
    """By its name as it is or, as SQL does, whatever its capitals."""
    from sqlglot import exp

    if not isinstance(tree, exp.Column) or tree.table:
        raise _refused(tree)
    alike = [name for name in schema.names if name.lower() == tree.name.lower()]
    name = alike[0] if len(alike) == 1 and tree.name not in schema.names else tree.name
    column_type(name, schema)
    return name


def _value(tree: exp.Expr) -> Any:
    from sqlglot import exp

    match tree:
        case exp.Literal():
            return tree.this if tree.is_string else _number(tree.this)
        case exp.Neg() if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return _number(f"-{tree.this.this}")
        case exp.Boolean():
            return bool(tree.this)
        case exp.Null():
            return None
        case exp.Cast() if isinstance(tree.this, exp.Literal) and tree.this.is_string:
            return tree.this.this  # TIMESTAMP '...', DATE '...': read as the column's type
    raise _refused(tree)


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _refused(tree: exp.Expr) -> BadCondition:
    return BadCondition(
        what=f"{tree.sql()!r} cannot be part of a condition here",
        do="Compare columns with values, by =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR, NOT",
    )
