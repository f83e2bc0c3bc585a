"""Records as they are sent: one function from a body and its headers to rows for a topic."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from headwater.errors import BadRequest
from headwater.log.spec import TopicSpec
from headwater.records import Rows
from headwater.serve.http.answers import ARROW, JSON, NDJSON

EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
ATTRIBUTES = ("id", "source", "specversion", "type")
"""What every CloudEvent has."""
KNOWN = (JSON, NDJSON, ARROW, EVENT, EVENTS)


@dataclass(frozen=True)
class Body:
    rows: Rows
    key: str | None = None
    """What makes it the same as another one: of CloudEvents, their sources and ids."""


def read_body(body: bytes, headers: Mapping[str, str], spec: TopicSpec) -> Body:
    """The rows of a body by its Content-Type; `BadRequest` if it is not what it says it is.

    Of a CloudEvent, `data` is the record; attributes of the event fill the columns of their names that the data leaves.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if headers.get("content-encoding", "identity") != "identity":
        raise BadRequest(why="the body is compressed", do="Send it as it is; Arrow streams may be compressed inside")
    if "ce-specversion" in headers:
        return _events([{**_attributes(headers), "data": _data(body, kind)}], spec)
    if kind in (NDJSON, "application/ndjson"):
        return Body([_parsed(line, kind) for line in body.splitlines() if line.strip()])
    if kind in (JSON, ""):
        return Body(_listed(_parsed(body, kind)))
    if kind in (ARROW, "application/vnd.apache.arrow.file"):
        return Body(_arrow(body, kind))
    if kind in (EVENT, EVENTS):
        return _events(_listed(_parsed(body, kind)), spec)
    raise BadRequest(why=f"records cannot be sent as {kind}", do=f"Send one of {', '.join(KNOWN)}")


def _parsed(text: bytes, kind: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            why=f"the body is not {kind or 'JSON'}: {error}", do="Send JSON or one JSON record a line"
        ) from None


def _listed(parsed: Any) -> list[Any]:
    return parsed if isinstance(parsed, list) else [parsed]


def _arrow(body: bytes, kind: str) -> pa.Table:
    try:
        if kind.endswith("file"):
            return ipc.open_file(body).read_all()
        return ipc.open_stream(body).read_all()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        told = str(error).splitlines()[0][:200]
        raise BadRequest(why=f"the body is not an Arrow stream: {told}", do=f"Send {ARROW}") from None


def _attributes(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name[3:].lower(): value for name, value in headers.items() if name.lower().startswith("ce-")}


def _data(body: bytes, kind: str) -> Any:
    return _parsed(body, kind) if kind in (JSON, "") or kind.endswith("+json") else body


def _events(events: list[Any], spec: TopicSpec) -> Body:
    rows = [_record(each, spec) for each in events]
    return Body(rows, json.dumps([[each["source"], each["id"]] for each in events]))


def _record(event: Any, spec: TopicSpec) -> dict[str, Any]:
    missing = [name for name in ATTRIBUTES if not isinstance(event, dict) or not event.get(name)]
    if missing or event["specversion"] != "1.0":
        raise BadRequest(
            why=f"not a CloudEvent 1.0: {', '.join(missing) or 'another specversion'}",
            do="Give id, source, specversion '1.0' and type",
        )
    data = event.get("data")
    if "data_base64" in event:
        try:
            data = base64.b64decode(event["data_base64"], validate=True)
        except (ValueError, TypeError):
            raise BadRequest(why="data_base64 is not base64", do="Encode it, or send data") from None
    record = dict(data) if isinstance(data, dict) else {} if data is None else {"data": data}
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    return {**{name: value for name, value in attributes.items() if name in spec.schema.names}, **record}
