"""An event, from CloudEvents or a webhook, as a record of a topic.

The fields of its data are the columns. Attributes (id, source, type, time, subject, extensions) go to the columns of
these names that the topic has and the data does not say; the others are left out. Data that is no object goes to the
column `data`. If the topic has a column `data` of text or bytes, that gets all of an object's data too, as JSON, and
then fields that have no column are not refused: they are kept there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import BadRequest

DATA = "data"


@dataclass(frozen=True)
class Event:
    """`source` and `id` together are the event: one that comes again is the same."""

    source: str
    id: str
    attributes: Mapping[str, Any]
    """All of them, also source and id."""
    data: Any = None

    def row(self, schema: pa.Schema) -> dict[str, Any]:
        kept = DATA in schema.names and _is_text(schema.field(DATA).type)
        if not isinstance(self.data, dict):
            row = {} if self.data is None else {DATA: _fitting(self.data, schema)}
        elif kept and DATA not in self.data:
            row = {name: value for name, value in self.data.items() if name in schema.names}
            row[DATA] = _fitting(self.data, schema)
        else:
            row = dict(self.data)
        told = {name: value for name, value in self.attributes.items() if name in schema.names}
        return {**told, **row}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _fitting(data: Any, schema: pa.Schema) -> Any:
    """Data as the column `data` has it."""
    if DATA not in schema.names or not _is_text(schema.field(DATA).type):
        return data
    as_bytes = pa.types.is_binary(schema.field(DATA).type)
    if isinstance(data, bytes):
        if as_bytes:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            why = "the event's data is not text, and the topic's column 'data' is"
            raise BadRequest(why=why, do="Give the topic a column 'data' of the type 'binary'") from None
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return text.encode() if as_bytes else text
