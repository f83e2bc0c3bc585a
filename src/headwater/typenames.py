"""The names of types, as users write them: `int64`, `decimal(18,4)`, `list<string>`, `struct<a: int64, b: string>`."""

from __future__ import annotations

import re

import pyarrow as pa

from headwater.errors import BadSchema

TIMESTAMP = pa.timestamp("us", "UTC")

NAMED: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
PLAIN = ", ".join([*NAMED, "decimal(P,S)", "list<T>", "struct<a: T, ...>", "map<K, V>"])


def supported(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return supported(kind.value_type)
    if pa.types.is_struct(kind):
        return all(supported(field.type) for field in kind)
    if pa.types.is_map(kind):
        return supported(kind.key_type) and supported(kind.item_type)
    return pa.types.is_decimal128(kind) or kind in NAMED.values()


def parse_type(text: str, *, column: str) -> pa.DataType:
    """The type that a name stands for, or `BadSchema` naming the column."""

    def refused() -> BadSchema:
        return BadSchema(what=f"column {column!r} has the type {text!r}", do=f"Types here: {PLAIN}")

    if not isinstance(text, str):
        raise refused()
    plain = text.strip()
    if plain in NAMED:
        return NAMED[plain]
    decimal = re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", plain)
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    nested = re.fullmatch(r"(list|struct|map)<(.*)>", plain, re.DOTALL)
    if nested is None:
        raise refused()
    parts = split_at_commas(nested[2])
    if nested[1] == "list" and len(parts) == 1:
        return pa.list_(parse_type(parts[0], column=column))
    if nested[1] == "map" and len(parts) == 2:
        return pa.map_(parse_type(parts[0], column=column), parse_type(parts[1], column=column))
    if nested[1] == "struct" and parts and all(":" in part for part in parts):
        named = [part.partition(":") for part in parts]
        return pa.struct([(name.strip(), parse_type(kind, column=column)) for name, _, kind in named])
    raise refused()


def split_at_commas(text: str) -> list[str]:
    """At the commas that are not inside of brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]
