"""Rows as they are answered: JSON, one JSON object a line, or an Arrow stream, as the client accepts."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
from fastapi import Request
from fastapi.responses import Response
from pyarrow import ipc

from headwater.errors import BadRequest

Form = Literal["json", "ndjson", "arrow"]
JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
FORMS: dict[str, Form] = {
    JSON: "json",
    "application/*": "json",
    "*/*": "json",
    NDJSON: "ndjson",
    "application/ndjson": "ndjson",
    ARROW: "arrow",
}
HEADER = "Headwater-"
"""Before the names of what a JSON answer says besides its rows, where the answer is rows alone."""
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows, in the form that Accept asks for.",
        "content": {
            JSON: {"schema": {"type": "object"}},
            NDJSON: {"schema": {"type": "string"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""For the description of routes that answer so."""


def form_of(request: Request) -> Form:
    """What the client likes best of what we can write."""
    accepts = request.headers.get("accept") or JSON
    ranked = sorted(map(_preference, accepts.split(",")), reverse=True, key=lambda each: each[0])
    for quality, kind in ranked:
        if quality > 0 and kind in FORMS:
            return FORMS[kind]
    known = ", ".join((JSON, NDJSON, ARROW))
    raise BadRequest(why=f"rows cannot be written as {accepts[:100]}", do=f"Accept one of {known}")


def rows_answer(form: Form, rows: pa.Table, about: Mapping[str, Any], *, called: str = "rows") -> Response:
    """`about` goes beside the rows, or into headers where there are only rows."""
    if form == "json":
        return json_answer({**about, called: rows.to_pylist()})
    headers = {HEADER + name.title(): _as_text(value) for name, value in about.items()}
    if form == "ndjson":
        return Response("".join(as_json(row) + "\n" for row in rows.to_pylist()), media_type=NDJSON, headers=headers)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW, headers=headers)


def json_answer(content: Any) -> Response:
    return Response(as_json(content), media_type=JSON)


def as_json(content: Any) -> str:
    try:
        return _encoded(content)
    except ValueError:  # JSON has no NaN and no infinity: they go as text
        return json.dumps(_finite(content), default=_value, ensure_ascii=False)


def _as_text(value: Any) -> str:
    """For a header."""
    return value if isinstance(value, str) else json.dumps(value)


def _preference(text: str) -> tuple[float, str]:
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    given = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return float(given), kind
    except ValueError:
        return 0.0, kind


def _value(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.datetime | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    return str(value)


_encoded = json.JSONEncoder(default=_value, allow_nan=False, ensure_ascii=False).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
