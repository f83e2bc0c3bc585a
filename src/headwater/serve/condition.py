"""Which rows of a view are wanted: a condition over its columns, checked against their types before any store sees it.

    {"page": "/a"}                   equal                  {"page": ["/a", "/b"]}     one of them
    {"n": {">=": 5, "<": 10}}        a range                {"page": None}             null
    "n >= 5 AND page IN ('/a', '/b')"                       the same as text, see `serve.condition_text`

Values are never part of a text: a store gets them beside its query, each of the type of its column.
Comparisons are those of SQL: one with a null in it holds for no row, so only {"page": None} asks for nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from headwater.errors import BadCondition, BadRecord
from headwater.records import to_batch

Op = Literal["=", "<>", "<", "<=", ">", ">="]
OPS: dict[str, Op] = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True)
class Compare:
    column: str
    op: Op
    value: Any
    """Of the column's type, never null."""


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class Among:
    """Equal to one of these."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Not:
    part: Condition


@dataclass(frozen=True)
class Joined:
    """All of the parts hold, or one of them."""

    how: Literal["AND", "OR"]
    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | IsNull | Among | Not | Joined
Where: TypeAlias = Mapping[str, Any] | str


def condition_of(where: Where, schema: pa.Schema) -> Condition:
    """What the user has written, or `BadCondition` naming the column."""
    if isinstance(where, str):
        from headwater.serve.condition_text import parsed

        return parsed(where, schema)
    if not isinstance(where, Mapping):
        raise BadCondition(what=f"where is a {type(where).__name__}", do="Give a dict such as {'n': {'>=': 5}}, or SQL")
    parts = [part for name, wanted in where.items() for part in _of_column(name, wanted, schema)]
    return parts[0] if len(parts) == 1 else Joined("AND", tuple(parts))


def _of_column(name: str, wanted: Any, schema: pa.Schema) -> list[Condition]:
    if isinstance(wanted, Mapping):
        unknown = [op for op in wanted if op not in OPS]
        if unknown or not wanted:
            raise BadCondition(what=f"column {name!r} is compared by {unknown}", do=f"Use one of {', '.join(OPS)}")
        return [compare(name, OPS[op], value, schema) for op, value in wanted.items()]
    if isinstance(wanted, list | tuple | set | frozenset):
        return [among(name, wanted, schema)]
    return [compare(name, "=", wanted, schema)]


def compare(name: str, op: Op, value: Any, schema: pa.Schema) -> Condition:
    kind = column_type(name, schema)
    if value is None:
        if op in ("=", "<>"):
            return IsNull(name) if op == "=" else Not(IsNull(name))
        raise BadCondition(
            what=f"column {name!r} is compared with null by {op}", do="Nothing is more or less than null"
        )
    return Compare(name, op, _typed(name, value, kind))


def among(name: str, values: Any, schema: pa.Schema) -> Condition:
    kind = column_type(name, schema)
    there = tuple(_typed(name, value, kind) for value in values if value is not None)
    nulls = (IsNull(name),) if None in values else ()
    parts = (*((Among(name, there),) if there else ()), *nulls)
    return parts[0] if len(parts) == 1 else Joined("OR", parts)  # of none of them there is no row


def column_type(name: str, schema: pa.Schema) -> pa.DataType:
    if name not in schema.names:
        raise BadCondition(what=f"there is no column {name!r}", do=f"Columns here: {', '.join(schema.names)}")
    return schema.field(name).type


def _typed(name: str, value: Any, kind: pa.DataType) -> Any:
    """As the column has it; text stands for any type, as it comes from a command line or a URL."""
    if pa.types.is_nested(kind):
        raise BadCondition(
            what=f"column {name!r} is {kind}: it is not compared here", do="Ask for it being null, or not"
        )
    try:
        if isinstance(value, str) and not pa.types.is_string(kind) and not pa.types.is_temporal(kind):
            value = pa.scalar(value).cast(kind).as_py()
        if isinstance(value, float) and pa.types.is_decimal(kind):
            value = str(value)
        return to_batch([{name: value}], pa.schema([(name, kind)]), topic="")[name][0].as_py()
    except (BadRecord, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadCondition(what=f"column {name!r}: {value!r} is not {kind}", do=f"Give a {kind}") from None
