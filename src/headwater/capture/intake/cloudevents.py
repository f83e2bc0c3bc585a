"""CloudEvents 1.0: structured (an event as JSON), batched (an array of them), binary (attributes are headers)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from headwater.capture.intake.bodies import MediaType, json_in
from headwater.capture.intake.events import Event
from headwater.errors import BadRequest

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
PREFIX = "ce-"
REQUIRED = ("id", "source", "type")
TEXTS = (*REQUIRED, "specversion", "datacontenttype", "dataschema", "subject", "time")
NAME = re.compile(r"[a-z0-9]+")
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""JSON can write these alone; no text has them."""


def is_cloudevents(media: MediaType, headers: Mapping[str, str]) -> bool:
    """`headers` by their names in lower case."""
    return media.kind.startswith("application/cloudevents") or PREFIX + "specversion" in headers


def events_in(body: bytes, media: MediaType, headers: Mapping[str, str]) -> list[Event]:
    if media.kind == STRUCTURED:
        return [_structured(json_in(body), "the event")]
    if media.kind == BATCHED:
        events = json_in(body)
        if not isinstance(events, list):
            raise BadRequest(why="a batch of events is not an array", do=f"Send one event as {STRUCTURED}")
        return [_structured(event, f"event {place} of the batch") for place, event in enumerate(events)]
    if media.kind.startswith("application/cloudevents"):
        raise BadRequest(
            why=f"events cannot be sent as {media.kind}", do=f"Send {STRUCTURED}, {BATCHED} or ce- headers"
        )
    return [_binary(body, media, headers)]


def _structured(event: Any, which: str) -> Event:
    if not isinstance(event, dict):
        raise _bad(which, f"is a {type(event).__name__}, not an object")
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    data = event.get("data")
    if event.get("data_base64") is not None:
        if data is not None:
            raise _bad(which, "has both data and data_base64")
        try:
            data = base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise _bad(which, "has a data_base64 that is not base64") from None
        if MediaType.parse(str(attributes.get("datacontenttype") or "application/octet-stream")).is_json:
            data = json_in(data)
    return _checked(attributes, data, which)


def _binary(body: bytes, media: MediaType, headers: Mapping[str, str]) -> Event:
    attributes: dict[str, Any] = {
        name.removeprefix(PREFIX): _header(value) for name, value in headers.items() if name.startswith(PREFIX)
    }
    if media.kind:
        attributes["datacontenttype"] = headers.get("content-type", media.kind)
    data = (json_in(body) if media.is_json else body) if body else None
    return _checked(attributes, data, "the event")


def _header(value: str) -> str:
    """As the HTTP binding writes text into a header: perhaps quoted, then percent-encoded."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return unquote(value)


def _checked(attributes: Mapping[str, Any], data: Any, which: str) -> Event:
    told = {name: value for name, value in attributes.items() if value is not None}
    for name, value in told.items():
        if not NAME.fullmatch(name):
            raise _bad(which, f"has an attribute {name!r}, and names are of a to z and 0 to 9")
        if name in TEXTS and not (isinstance(value, str) and value):
            raise _bad(which, f"has the {name} {value!r}, which is no text or empty")
        if not isinstance(value, str | bool | int):
            raise _bad(which, f"has an attribute {name!r} that is a {type(value).__name__}")
        if isinstance(value, str) and SURROGATE.search(value):
            raise _bad(which, f"has half of a letter in its {name}")
    if told.get("specversion") != "1.0":
        raise _bad(which, f"has the specversion {told.get('specversion')!r}, and 1.0 is known here")
    for name in REQUIRED:
        if name not in told:
            raise _bad(which, f"has no {name}")
    if "time" in told:
        try:
            moment = datetime.fromisoformat(told["time"].upper())
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise _bad(which, f"has the time {told['time']!r}, which is not as RFC 3339 has it")
        told["time"] = moment.isoformat()
    return Event(told["source"], told["id"], told, data)


def _bad(which: str, why: str) -> BadRequest:
    return BadRequest(
        why=f"{which} {why}; nothing was appended",
        do="An event of CloudEvents 1.0 has specversion, id, source and type, and its data in data or data_base64",
    )
