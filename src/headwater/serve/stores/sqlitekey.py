"""A key as somebody asks for it, text of a URL or values of Python, in the values that SQLite has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.errors import BadKey
from headwater.serve.stores.plainvalues import plain

_DIGITS = 18
"""So many always fit 64 bits."""


class AskedKey:
    def __init__(self, schema: pa.Schema, key: tuple[str, ...], view: str) -> None:
        self._key = key
        self._kinds = [schema.field(name).type for name in key]
        self._view = view

    def values(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """One value a key column; `BadKey` if there are more or fewer, or one is not of its column's type."""
        if not self._key or len(given) != len(self._key):
            raise self._bad(given)
        try:
            return tuple(_value(value, kind) for value, kind in zip(given, self._kinds, strict=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise self._bad(given) from None

    def _bad(self, given: Sequence[Any]) -> BadKey:
        return BadKey(view=self._view, key=self._key, given=tuple(given))


def _value(value: Any, kind: pa.DataType) -> Any:
    if type(value) is str:  # the commonest keys, which Arrow takes the same way at thirty times the price
        if kind == pa.string():
            return value
        if kind == pa.int64() and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
            return int(value)
    typed = pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
    return plain(pa.array([typed.as_py()], kind))[0].as_py()
