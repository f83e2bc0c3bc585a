"""What a table map of the binlog says: how its table's row images are made, and of which columns.

With `binlog_row_metadata = FULL` it tells names, signs, character sets and the members of enums, as they were when the
changes were made, whatever has become of the table since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headwater.capture.compiled import Ints
from headwater.capture.mysql.images import DIGIT_BYTES
from headwater.capture.mysql.tables import Table
from headwater.capture.mysql.types import ENCODINGS, Column
from headwater.errors import TableChanged

FIXED = {
    1: ("tinyint", 1),
    2: ("smallint", 2),
    9: ("mediumint", 3),
    3: ("int", 4),
    8: ("bigint", 8),
    4: ("float", 4),
    5: ("double", 8),
    10: ("date", 3),
    14: ("date", 3),
    13: ("year", 1),
}
CLOCKS = {17: ("timestamp", 4), 18: ("datetime", 5), 19: ("time", 3)}
"""And bytes for the fraction of the second."""
VARCHAR, BIT, JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    *(15, 16, 245, 246, 247, 248, 252, 253, 254, 255),
)
FIXED_BYTES = ("uuid", "inet6", "inet4")
"""In row images they are bytes of a fixed width."""


@dataclass(frozen=True)
class Layout:
    """`columns` are in the order of the images; None is not captured."""

    columns: tuple[Column | None, ...]
    widths: Ints
    prefixes: Ints
    """Bytes of the length that stands before a value; 0 if its width is fixed."""


def layout_of(told: Any, table: Table) -> Layout:
    """`told` is mysql-replication's event; `table` as it is described now."""
    now = {column.name: column for column in table.columns}
    columns: list[Column | None] = []
    widths, prefixes = [], []
    for each in told.columns:
        form = _form(each)
        if form is None or each.name is None:
            raise TableChanged(
                table=table.name,
                topic=table.topic,
                why=f"column {each.name or '?'!r} is told in a form of an older server (type {each.type})",
                do=f"Run: ALTER TABLE {table.sql_name} FORCE; and then: headwater capture resnapshot NAME {table.name}",
            )
        column, width, prefix = form
        columns.append(_as_known(column, now.get(each.name), key=each.name in table.key))
        widths.append(width)
        prefixes.append(prefix)
    return Layout(tuple(columns), np.array(widths, np.int64), np.array(prefixes, np.int64))


def left_out(layout: Layout, names: set[str]) -> Layout:
    """Without these columns: generated ones, which are told but not captured."""
    kept = tuple(None if each is not None and each.name in names else each for each in layout.columns)
    return replace(layout, columns=kept)


def _form(told: Any) -> tuple[Column, int, int] | None:
    """The column, and how its values stand in images."""
    fixed = _fixed(told)
    return (*fixed, 0) if fixed is not None else _prefixed(told)


def _fixed(told: Any) -> tuple[Column, int] | None:
    """With the width of its values."""
    kind, name = told.type, told.name
    if kind in FIXED:
        base, width = FIXED[kind]
        return Column(name, base, unsigned=told.unsigned and base != "year"), width
    if kind in CLOCKS:
        base, width = CLOCKS[kind]
        return Column(name, base, size=told.fsp), width + (told.fsp + 1) // 2
    if kind == DECIMAL:
        whole, scale = told.precision - told.decimals, told.decimals
        width = sum(int(DIGIT_BYTES[digits]) for digits in (whole % 9, scale % 9)) + 4 * (whole // 9 + scale // 9)
        return Column(name, "decimal", told.unsigned, told.precision, scale), width
    if kind == BIT:
        return Column(name, "bit", size=told.bits), told.bytes
    if kind in (ENUM, SET):
        members = told.enum_values[1:] if kind == ENUM else told.set_values
        return Column(name, "enum" if kind == ENUM else "set", members=tuple(members)), told.size
    return None


def _prefixed(told: Any) -> tuple[Column, int, int] | None:
    """With the bytes of the length that stands before its values."""
    kind, name = told.type, told.name
    if kind in (BLOB, JSON, GEOMETRY):
        base = {BLOB: "blob" if _binary(told) else "text", JSON: "json", GEOMETRY: "geometry"}[kind]
        return Column(name, base, encoding=_encoding(told)), 0, told.length_size
    if kind in (VARCHAR, VAR_STRING, STRING):
        base = ("binary" if kind == STRING else "varbinary") if _binary(told) else "text"
        size = told.max_length if base == "binary" else 0
        return Column(name, base, size=size, encoding=_encoding(told)), 0, 1 if told.max_length <= 255 else 2
    return None


def _binary(told: Any) -> bool:
    return bool(told.collation_name == "binary")


def _encoding(told: Any) -> str:
    """Empty if the collation is newer than mysql-replication's list of them."""
    return ENCODINGS.get((told.collation_name or "").split("_")[0], "")


def _as_known(told: Column, now: Column | None, *, key: bool) -> Column:
    """What a table map does not say: that bytes are an address, what a new collation is written in, the members of an
    enum that are not UTF-8."""
    if now is None:
        return replace(told, encoding=told.encoding or "utf8", key=key)
    if told.base == "binary" and now.base in FIXED_BYTES:
        return now
    members = now.members if "" in told.members and len(now.members) == len(told.members) else told.members
    return replace(told, members=members, encoding=told.encoding or now.encoding, key=key)
