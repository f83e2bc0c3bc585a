"""A key as bytes: how versioned topics remember it. Equal keys give equal bytes, whatever width their integers have."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def key_bytes(values: tuple[Any, ...]) -> bytes:
    return _encoded([_plain(value) for value in values]).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return ["at", value.astimezone(datetime.UTC).isoformat()]
    if isinstance(value, datetime.date):
        return ["day", value.isoformat()]
    if isinstance(value, bytes):
        return ["raw", value.hex()]
    return ["number", str(value.normalize())] if isinstance(value, decimal.Decimal) else value
