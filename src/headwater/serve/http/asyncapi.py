"""An AsyncAPI 3.1 document of all topics and views, made from the catalog when it is asked for.

In its words the application is this server: it *receives* what is appended to a topic, and *sends* to who follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request

from headwater.log.spec import TopicSpec
from headwater.records import DELETED, WEIGHT
from headwater.serve.http.permissions import needs_somebody
from headwater.serve.http.served import Served
from headwater.serve.view import ViewSpec

VERSION = "3.1.0"
_INTEGERS = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}


def asyncapi_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["descriptions"])

    @router.get("/asyncapi.json", dependencies=[needs_somebody()])
    def asyncapi(request: Request) -> dict[str, Any]:
        """What can be appended to and followed, as far as you may read it."""
        names = [name for name in served.names() if served.may_read(request, "topic", name)]
        views = [view.spec for name, view in served.views.items() if served.may_read(request, "view", name)]
        topics = [served.readable(name).spec for name in names]
        host, scheme = request.url.netloc, request.url.scheme
        return document(topics, views, appendable=set(served.topics), host=host, scheme=scheme)

    return router


def document(
    topics: Iterable[TopicSpec], views: Iterable[ViewSpec], *, appendable: set[str], host: str, scheme: str
) -> dict[str, Any]:
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for spec in topics:
        schemas[spec.name] = object_schema(spec.stored, spec.required)
        channels[spec.name] = _channel(f"topics/{spec.name}/records", spec.name)
        if spec.name in appendable:
            operations[f"append.{spec.name}"] = _operation("receive", spec.name)
        operations[f"follow.{spec.name}"] = _operation("send", spec.name)
    for view in views:
        name = f"view.{view.name}"
        changed = view.schema.append(pa.field(WEIGHT, pa.int64()))
        schemas[name] = object_schema(changed, (*view.key, WEIGHT))
        channels[name] = _channel(f"views/{view.name}/changes", name)
        operations[f"follow.{name}"] = _operation("send", name)
    return {
        "asyncapi": VERSION,
        "info": {"title": "Headwater", "version": "1"},
        "servers": {"here": {"host": host, "protocol": scheme}},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"schemas": schemas},
    }


def object_schema(schema: pa.Schema, required: Iterable[str]) -> dict[str, Any]:
    """JSON Schema of a record. What has a default when it is left out is not required."""
    must = [name for name in required if name not in (WEIGHT, DELETED)]
    properties = {field.name: _json_type(field.type, null=field.name not in must) for field in schema}
    told: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**told, "required": must} if must else told


def _json_type(kind: pa.DataType, *, null: bool) -> dict[str, Any]:
    told = _plain(kind)
    return {**told, "type": [told["type"], "null"]} if null else told


def _plain(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        unsigned = pa.types.is_unsigned_integer(kind)
        return {"type": "integer", "format": ("u" if unsigned else "") + _INTEGERS[kind.bit_width]}
    if pa.types.is_floating(kind):
        return {"type": "number", "format": "double" if kind.bit_width == 64 else "float"}
    return _nested(kind) if pa.types.is_nested(kind) else {"type": "string", **_text(kind)}


def _text(kind: pa.DataType) -> dict[str, Any]:
    """What is written as text in JSON."""
    if pa.types.is_timestamp(kind):
        return {"format": "date-time"}
    if pa.types.is_date(kind):
        return {"format": "date"}
    if pa.types.is_binary(kind):
        return {"contentEncoding": "base64"}
    return {"format": "decimal"} if pa.types.is_decimal(kind) else {}


def _nested(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {"type": "array", "items": _json_type(kind.value_type, null=True)}
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: _json_type(field.type, null=True) for field in kind}}
    pair = [_json_type(kind.key_type, null=False), _json_type(kind.item_type, null=True)]
    return {"type": "array", "items": {"type": "array", "prefixItems": pair}}


def _channel(address: str, schema: str) -> dict[str, Any]:
    return {"address": address, "messages": {"record": {"payload": {"$ref": f"#/components/schemas/{schema}"}}}}


def _operation(action: str, channel: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
