"""A key as bytes: how versioned topics remember it. Equal keys give equal bytes, whatever width their integers have."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any


def key_bytes(values: tuple[Any, ...]) -> bytes:
    return json.dumps([_plain(value) for value in values], separators=(",", ":"), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return ["at", value.astimezone(datetime.UTC).isoformat()]
    if isinstance(value, datetime.date):
        return ["day", value.isoformat()]
    if isinstance(value, bytes):
        return ["raw", value.hex()]
    return ["number", str(value.normalize())] if isinstance(value, decimal.Decimal) else value
