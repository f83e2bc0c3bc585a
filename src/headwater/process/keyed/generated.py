"""Small functions written out for given columns, as dataclasses does it: a loop over names would cost the most of all.

Names go in as their repr, values never: nothing that a user says becomes code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


@lru_cache(maxsize=64)
def rows_maker(names: tuple[str, ...]) -> Callable[[Iterable[Sequence[Any]]], Iterator[Row]]:
    """A function from tuples of values to dicts with these names."""
    values = "".join(f"v{place}, " for place in range(len(names)))
    pairs = ", ".join(f"{name!r}: v{place}" for place, name in enumerate(names))
    source = ["def made(rows):", f"    for ({values}) in rows:", f"        yield {{{pairs}}}"]
    made: Callable[[Iterable[Sequence[Any]]], Iterator[Row]] = _made("\n".join(source))
    return made


@lru_cache(maxsize=64)
def plain_row(columns: pa.Schema) -> Callable[[Row], Row | None]:
    """A function that answers a copy of a row if each value is of its column's kind as it stands; else None."""
    lines = ["def made(row):", f"    if len(row) != {len(columns)}:", "        return None"]
    for place, field in enumerate(columns):
        lines.append(f"    v{place} = row.get({field.name!r}, MISSING)")
        lines.append(f"    if v{place} is not None and not ({_condition(field.type, f'v{place}')}):")
        lines.append("        return None")
    pairs = ", ".join(f"{field.name!r}: v{place}" for place, field in enumerate(columns))
    made: Callable[[Row], Row | None] = _made("\n".join([*lines, f"    return {{{pairs}}}"]))
    return made


def _condition(kind: pa.DataType, value: str) -> str:
    if pa.types.is_integer(kind):
        low, high = (0, 2**kind.bit_width) if pa.types.is_unsigned_integer(kind) else _signed(kind.bit_width)
        return f"type({value}) is int and {low} <= {value} < {high}"
    if pa.types.is_string(kind):
        return f"type({value}) is str and ({value}.isascii() or encodable({value}))"
    if kind == pa.timestamp("us", "UTC"):
        return f"type({value}) is datetime and {value}.tzinfo is UTC"
    plain = {pa.float64(): "float", pa.bool_(): "bool", pa.binary(): "bytes", pa.date32(): "date"}.get(kind)
    return f"type({value}) is {plain}" if plain else "False"


def _signed(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _made(source: str) -> Any:
    known = {"MISSING": object(), "UTC": UTC, "datetime": datetime, "date": date, "encodable": _encodable}
    exec(source, known)
    return known["made"]
