"""Grouping queries recognised as the plain sums, counts, least and greatest values that most of them are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import sqlglot
from sqlglot import exp

from headwater.process.keyed.partial import Number, Partial
from headwater.process.keyed.summing import How
from headwater.process.plan import ONE
from headwater.process.sql.parse import DIALECT
from headwater.process.sql.plain import plain_columns
from headwater.records import WEIGHT

_OTHER = ("having", "qualify", "order", "limit", "offset", "distinct", "joins", "with_", "with")
_HOW: dict[type, How] = {exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}
_ANOTHER = -1
"""In the place of a scale: another type."""


@lru_cache(maxsize=256)
def partial_of(sql: str) -> Partial | None:
    """None if the query is another one, or asks for something else as well."""
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    if not isinstance(query, exp.Select) or query.args.get("group") is None or any(map(query.args.get, _OTHER)):
        return None
    source = query.args["from_" if "from_" in query.args else "from"].this
    columns = dict(plain_columns(source.this.sql(DIALECT)) or ()) if isinstance(source, exp.Subquery) else {}
    grouped = [_column(each) for each in query.args["group"].expressions]
    known = _known(query)
    if known is None or None in grouped or any(query.args["group"].args.get(each) for each in ("rollup", "cube")):
        return None
    keys: list[tuple[str, str]] = []
    numbers: list[Number] = []
    for item in query.expressions:
        name = _column(item)
        if name is not None and not numbers:
            keys.append((name, name))
        else:
            number = _number(item.unalias(), item.alias_or_name)
            if number is None:
                return None
            numbers.append(number)
    if not keys or [name for name, _ in keys] != grouped:
        return None
    try:
        return Partial(
            tuple((name, _of(columns, of)) for name, of in keys),
            tuple(_resolved(each, columns) for each in numbers),
            tuple(_of(columns, name) for name in known),
        )
    except KeyError:
        return None


def _of(columns: Mapping[str, str], name: str) -> str:
    """Which column of `changes` it is; KeyError for the number 1, too."""
    if columns[name] == ONE:
        raise KeyError(name)
    return columns[name]


def _resolved(number: Number, columns: Mapping[str, str]) -> Number:
    of, weighed = number.of, number.weighed
    if of == WEIGHT and columns[WEIGHT] == ONE:
        of = None
    if weighed and columns[WEIGHT] == ONE:
        weighed = False
    if weighed and columns[WEIGHT] != WEIGHT:
        raise KeyError(WEIGHT)
    known = _of(columns, number.known) if number.known is not None else None
    return replace(number, of=None if of is None else _of(columns, of), weighed=weighed, known=known)


def _known(query: exp.Select) -> tuple[str, ...] | None:
    """The columns that must not be null, if nothing else is asked of rows."""
    where = query.args.get("where")
    conditions = list(where.this.flatten()) if where is not None and isinstance(where.this, exp.And) else []
    conditions = conditions or ([where.this] if where is not None else [])
    return _not_null(conditions)


def _not_null(conditions: Sequence[exp.Expr]) -> tuple[str, ...] | None:
    names = []
    for each in conditions:
        condition = each.unnest()
        if isinstance(condition, exp.Boolean) and condition.this:
            continue
        inner = condition.this if isinstance(condition, exp.Not) else None
        if not isinstance(inner, exp.Is) or not isinstance(inner.expression, exp.Null):
            return None
        name = _column(inner.this)
        if name is None:
            return None
        names.append(name)
    return tuple(names)


def _number(node: exp.Expr, name: str) -> Number | None:
    node, scale = _uncast(node)
    if isinstance(node, exp.Coalesce) and [each.sql() for each in node.expressions] == ["0"]:
        node = node.this
    known: tuple[str, ...] | None = ()
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        known = _not_null(list(condition.flatten()) if isinstance(condition, exp.And) else [condition])
        node = node.this
    more = any(value for name, value in node.args.items() if name not in ("this", "big_int"))
    if known is None or len(known) > 1 or more or scale is _ANOTHER:
        return None
    return _aggregate(node, name, known[0] if known else None, scale)


def _aggregate(node: exp.Expr, name: str, known: str | None, scale: int | None) -> Number | None:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return Number(name, "sum", None, known=known)
    summed, weighed, how = node.this, False, _HOW.get(type(node))
    if how is None or (how != "sum" and (known is not None or scale is not None)):
        return None
    if how == "sum" and isinstance(summed, exp.Mul) and _column(summed.expression) == WEIGHT:
        summed, weighed = summed.this, True
    if how == "sum" and isinstance(summed, exp.Cast) and summed.to.sql(DIALECT) == "INT128":
        summed = summed.this
    of = _column(summed)
    return Number(name, how, of, weighed, known, scale) if of is not None else None


def _uncast(node: exp.Expr) -> tuple[exp.Expr, int | None]:
    """Without its cast, and the scale of the decimal that it is cast to, None for a BIGINT."""
    if not isinstance(node, exp.Cast):
        return node, None
    return node.this, {"BIGINT": None, "DECIMAL(38, 0)": 0}.get(node.to.sql(DIALECT), _ANOTHER)


def _column(node: exp.Expr) -> str | None:
    inner = node.unnest()
    return inner.name if isinstance(inner, exp.Column) and not inner.table else None
