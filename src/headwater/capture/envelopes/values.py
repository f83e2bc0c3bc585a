"""Values as JSON has them become those of a topic's columns.

What a number or a text means is said by the schema beside the message, if it has one. Without it, the column's own type
and the user's settings decide; what would be a guess is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headwater.capture.envelopes.message import Told, Unreadable

Read = Callable[[Any], Any]
TimeUnit = Literal["ms", "us", "ns"]
Decimals = Literal["precise", "string"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
"""Python's calendar: what lies outside, infinity among it, is its end."""
PER_US = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
MOMENTS: dict[str, TimeUnit] = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
TIMES_OF_DAY: dict[str, TimeUnit] = {
    "io.debezium.time.Time": "ms",
    "org.apache.kafka.connect.data.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"

PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS: tuple[Any, ...] = (
    PLACEHOLDER,
    base64.b64encode(PLACEHOLDER.encode()).decode(),
    [PLACEHOLDER],
    list(PLACEHOLDER.encode()),
    [str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))],
    {PLACEHOLDER: PLACEHOLDER},
    json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
)
"""As a text, bytes, an array of texts, of numbers, of uuids, a map, and a map written as a text."""


class _Missing:
    """A large value that did not change and was not sent."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True)
class Meaning:
    """What is not said in messages without a schema."""

    times: TimeUnit | None = None
    """The unit of moments that are numbers."""
    decimals: Decimals = "precise"
    """Whether a decimal that is a text is base64 of its digits, or the number itself."""
    documents: bool = False
    """Values are MongoDB's: an object is one, never a decimal of variable scale."""


def read_value(value: Any, kind: pa.DataType, told: Told | None, meaning: Meaning) -> Any:
    """The value as Arrow gives it back from a column of this type; MISSING if it was not sent."""
    if value is None:
        return None
    if not meaning.documents and value in _PLACEHOLDERS:
        return MISSING
    try:
        return reader(kind, told, meaning)(value)
    except (ValueError, TypeError, KeyError, ArithmeticError, binascii.Error) as error:
        shown = repr(value)
        raise Unreadable(f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not {kind} ({error})") from None


@lru_cache(maxsize=4096)
def reader(kind: pa.DataType, told: Told | None, meaning: Meaning) -> Read:
    """What reads values into a column of this type."""
    if pa.types.is_integer(kind):
        bounds = np.iinfo(kind.to_pandas_dtype())
        low, high = int(bounds.min), int(bounds.max)
        return lambda value: _integer(value, low, high)
    kinds: tuple[tuple[bool, Read], ...] = (
        (pa.types.is_boolean(kind), _boolean),
        (pa.types.is_floating(kind), lambda value: _floating(_number(value, told, meaning), kind == pa.float32())),
        (pa.types.is_decimal(kind), lambda value: _fitting(_decimal(value, told, meaning, kind.scale), kind)),
        (pa.types.is_binary(kind), lambda value: base64.b64decode(_text_only(value), validate=True)),
        (pa.types.is_date(kind), lambda value: _day(value, told)),
        (pa.types.is_timestamp(kind), lambda value: _moment(value, told, meaning)),
        (pa.types.is_nested(kind), lambda value: _nested(_unwrapped(value), kind, told, meaning)),
    )
    return next((read for is_it, read in kinds if is_it), lambda value: _text(value, told, meaning))


def _boolean(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError("neither true nor false")
    return bool(value)


def _integer(value: Any, low: int, high: int) -> int:
    if type(value) is int and low <= value <= high:
        return value
    if isinstance(value, bool) or int(value) != Decimal(value):
        raise ValueError("not a whole number")
    if not low <= int(value) <= high:
        raise ValueError(f"not from {low} to {high}")
    return int(value)


def _number(value: Any, told: Told | None, meaning: Meaning) -> Any:
    if isinstance(value, bool):
        raise ValueError("not a number")
    exact = told is not None and told.name in (DECIMAL, VARIABLE)
    return _decimal(value, told, meaning, 0) if exact else value


def _floating(number: Any, narrow: bool) -> float:
    return float(np.float32(float(number))) if narrow else float(number)


def _decimal(value: Any, told: Told | None, meaning: Meaning, scale: int) -> Decimal | None:
    """None is NaN, which a decimal cannot be."""
    if isinstance(value, dict):
        return _unscaled(value["value"], int(value["scale"]))
    if told is not None and told.name == DECIMAL:
        return _unscaled(value, told.scale)
    if isinstance(value, str) and told is None and meaning.decimals == "precise" and not meaning.documents:
        try:
            return _unscaled(value, scale)
        except binascii.Error:
            raise ValueError("it is not base64: say decimals='string' if decimals are told as texts") from None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError("not a number") from None
    return None if number.is_nan() else number


def _unscaled(text: str, scale: int) -> Decimal:
    """Base64 of a whole number, its largest byte first, to be divided by 10 ** scale."""
    whole = int.from_bytes(base64.b64decode(_text_only(text), validate=True), "big", signed=True)
    return Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -scale))


def _fitting(number: Decimal | None, kind: pa.DataType) -> Decimal | None:
    if number is None:
        return None
    with localcontext() as context:
        context.prec = 76
        fitted = number.quantize(Decimal(1).scaleb(-kind.scale))
    if fitted != number or len(fitted.as_tuple().digits) > kind.precision:
        raise ValueError("it has more digits")
    return fitted


def _day(value: Any, told: Told | None) -> date:
    if isinstance(value, str):
        return _iso(value).date()
    if told is not None and told.name and told.name not in DAYS:
        raise ValueError(f"its schema says {told.name}")
    return moment_at(_integer(value, -(2**63), 2**63) * 86_400_000_000).date()


def _moment(value: Any, told: Told | None, meaning: Meaning) -> datetime:
    if isinstance(value, str):
        return _iso(value)
    if told is not None and told.name in DAYS:
        return moment_at(int(value) * 86_400_000_000)
    unit = MOMENTS.get(told.name) if told is not None else meaning.times
    if unit is None:
        raise ValueError("a number, of what unit? say times='us', or ms, or ns: it is not said beside the message")
    times, parts = PER_US[unit]
    return moment_at(_integer(value, -(2**63), 2**63) * times // parts)


def moment_at(micros: int) -> datetime:
    """So many microseconds after 1970 began."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return LAST if micros > 0 else FIRST


def _iso(text: str) -> datetime:
    """Without a zone it is taken as UTC."""
    plain = text.strip()
    if plain.lstrip("+-").lower() == "infinity" or plain[:1] in "+-" or len(plain.partition("-")[0]) > 4:
        return FIRST if plain.startswith("-") else LAST
    found = datetime.fromisoformat(plain)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _nested(value: Any, kind: pa.DataType, told: Told | None, meaning: Meaning) -> Any:
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise ValueError("not a list")
        read = reader(kind.value_type, told.items if told is not None else None, meaning)
        return [None if each is None else read(each) for each in value]
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if pa.types.is_map(kind):
        key, item = reader(kind.key_type, None, meaning), reader(kind.item_type, None, meaning)
        return [(key(name), None if each is None else item(each)) for name, each in value.items()]
    fields = {field.name: (value.get(field.name), reader(field.type, None, meaning)) for field in kind}
    return {name: None if each is None else read(each) for name, (each, read) in fields.items()}


def _text(value: Any, told: Told | None, meaning: Meaning) -> str:
    name = told.name if told is not None else ""
    variable = isinstance(value, dict) and value.keys() == {"scale", "value"} and not meaning.documents
    if name == DECIMAL or (variable and (told is None or name == VARIABLE)):
        return format(_decimal(value, told, meaning, 0) or 0, "f")
    if isinstance(value, str):
        return value
    if name in TIMES_OF_DAY:
        return _time_of_day(value, TIMES_OF_DAY[name])
    if name in DAYS:
        return _day(value, told).isoformat()
    if name in MOMENTS:
        return _moment(value, told, meaning).isoformat()
    return json.dumps(value, ensure_ascii=False, default=float)


def _time_of_day(value: Any, unit: TimeUnit) -> str:
    times, parts = PER_US[unit]
    micros = int(value) * times // parts
    seconds, fraction = divmod(micros, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:06d}".rstrip("0") if fraction else clock


def _text_only(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _unwrapped(value: Any) -> Any:
    """A list or an object that is told as a text of JSON."""
    return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
