"""Records that could not be taken: what they were, why not, and where in the log they stand."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from headwater.process.keyed.records import partition_and_offset

SCHEMA = pa.schema(
    [
        ("record", pa.string()),
        ("error", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class DeadLetter:
    record: dict[str, Any]
    error: str
    position: int


def to_table(letters: Sequence[DeadLetter], topic: str) -> pa.Table:
    """In the order of the log."""
    rows = []
    for letter in sorted(letters, key=lambda letter: letter.position):
        partition, offset = partition_and_offset(letter.position)
        text = json.dumps(_plain(letter.record), ensure_ascii=False)
        rows.append({"record": text, "error": letter.error, "topic": topic, "partition": partition, "offset": offset})
    return pa.Table.from_pylist(rows, SCHEMA)


def _plain(value: Any) -> Any:
    """As JSON has it: times in ISO 8601, bytes in base64, decimals and what is no number as text."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if value is None or isinstance(value, bool | int | str) else str(value)
