"""Topics over HTTP: append, read, page by page."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import ipc

from headwater.client.following import Following
from headwater.client.steps import ARROW, Call, Steps, asked
from headwater.errors import UsageError
from headwater.log.position import Position
from headwater.log.protocol import Producer
from headwater.records import Rows

PAGE = 10_000
Start = Position | datetime | str | None


@dataclass(frozen=True)
class Page:
    records: pa.Table
    position: Position
    """Where the next page begins."""


def append(
    topic: str,
    rows: Rows,
    *,
    idempotency_key: str | None = None,
    producer: Producer | None = None,
    sequence: int | None = None,
) -> Steps[Position]:
    """Append, durably, all rows or none; returns the position right after them, to wait for in a view.

    It is safe to repeat: with a producer and a sequence, with a key of yours, or by itself when the connection breaks.
    """
    kind, content = _body(rows)
    headers = {"Content-Type": kind}
    params: dict[str, Any] = {}
    if producer is not None:
        params = {"producer": producer.name, "sequence": sequence}
    else:
        headers["Idempotency-Key"] = idempotency_key or uuid.uuid4().hex
    answer = yield from asked(Call("POST", f"{_path(topic)}/records", params, headers, content))
    return Position.parse(answer.json()["position"])


def page(topic: str, start: Start = None, *, limit: int = 1000, wait_s: float = 0.0) -> Steps[Page]:
    """The next records after `start` and the position after them; with `wait_s`, as soon as there are any."""
    params = {"start": _start(start), "limit": limit, "wait_s": wait_s}
    call = Call("GET", f"{_path(topic)}/records", params, {"Accept": ARROW}, wait_s=wait_s)
    answer = yield from asked(call)
    return Page(answer.table(), Position.parse(answer.headers["headwater-position"]))


def read(topic: str, start: Start = None, end: Position | None = None) -> Steps[pa.Table]:
    """The records after `start` up to `end`, or all that are there, with metadata columns."""
    last = end if end is not None else (yield from _end(topic))
    found: list[pa.Table] = []
    here = start
    while True:
        next_ = yield from page(topic, here, limit=PAGE)
        found.append(next_.records)
        if next_.position.covers(last.only([topic])) or not next_.records.num_rows:
            break
        here = next_.position
    records = pa.concat_tables(found, promote_options="permissive")
    if end is None:
        return records
    places = zip(records["_partition"].to_pylist(), records["_offset"].to_pylist(), strict=True)
    return records.filter(pa.array([offset < end.offset(topic, p) for p, offset in places], pa.bool_()))


def describe(topic: str) -> Steps[dict[str, Any]]:
    answer = yield from asked(Call("GET", _path(topic)))
    told: dict[str, Any] = answer.json()
    return told


def _end(topic: str) -> Steps[Position]:
    return Position.parse((yield from describe(topic))["end"])


def _path(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def _start(start: Start) -> str:
    if isinstance(start, datetime):
        return start.isoformat()
    return "start" if start is None else str(start) or "start"


def _body(rows: Rows) -> tuple[str, bytes]:
    """Arrow as Arrow, lines as lines, dicts as JSON."""
    if isinstance(rows, str | bytes):
        return "application/x-ndjson", rows.encode() if isinstance(rows, str) else rows
    if hasattr(rows, "iloc"):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return ARROW, sink.getvalue().to_pybytes()
    return "application/json", json.dumps(rows, default=_value).encode()


def _value(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        raise UsageError(
            what=f"bytes have no form in JSON ({base64.b64encode(value[:8]).decode()}...)",
            do="Append them as an Arrow table: pa.Table.from_pylist(rows)",
        )
    raise UsageError(what=f"{type(value).__name__} has no form in JSON", do="Append plain values, or an Arrow table")


def following(name: str, start: Position | str, last_id: str | None) -> Following:
    return Following(f"/topics/{name}/follow", {"start": str(start) or "start"}, last_id)
