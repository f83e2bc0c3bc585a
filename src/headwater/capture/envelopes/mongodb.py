"""Debezium's envelope as its MongoDB connector writes it: documents are texts of MongoDB's extended JSON.

A document's `_id` becomes the column `id`: names that begin with `_` are kept for metadata.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from headwater.capture.envelopes.message import Act, Message, Patch, Place, Unreadable, Values, parsed
from headwater.capture.envelopes.values import moment_at

ID = "_id"


def message(act: Act, names: tuple[str, ...], keys: Any, told: Values, place: Place | None) -> Message:
    row, old = document(told.get("after")), document(told.get("before"))
    if act is Act.PUT and row is None:
        how = told.get("updateDescription")
        if not how:
            raise Unreadable("it has neither the document nor what was updated in it")
        return Message(Act.PATCH, names, key(keys), patch=_patch(how), place=place, documents=True)
    row = None if act is Act.REMOVE else row
    return Message(act, names, key(keys), old, row, place=place, documents=True)


def document(text: Any) -> Values | None:
    found = parsed(text) if isinstance(text, str) else text
    if found is None:
        return None
    if not isinstance(found, dict):
        raise Unreadable("a document that is not an object")
    return {_column(name): plain(value) for name, value in found.items()}


def key(keys: Any) -> Values | None:
    """{"id": "{\\"$oid\\": \\"...\\"}"}"""
    if not isinstance(keys, dict) or "id" not in keys:
        return None
    given = keys["id"]
    return {"id": plain(parsed(given)) if isinstance(given, str) else given}


def plain(value: Any) -> Any:
    """Extended JSON, canonical or relaxed, as plain values; moments as ISO 8601, bytes as base64."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), "")
    return _KINDS[kind](value[kind]) if kind in _KINDS else {name: plain(each) for name, each in value.items()}


def _moment(inner: Any) -> str:
    if isinstance(inner, str):
        return inner
    millis = int(inner["$numberLong"]) if isinstance(inner, dict) else int(inner)
    return moment_at(1000 * millis).isoformat()


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("$oid", "$symbol", "$uuid", "$code", "$numberDecimal"), lambda inner: inner),
    **dict.fromkeys(("$numberLong", "$numberInt"), lambda inner: int(str(inner))),
    **dict.fromkeys(("$undefined", "$minKey", "$maxKey"), lambda inner: None),
    "$numberDouble": lambda inner: float(str(inner)),
    "$date": _moment,
    "$binary": lambda inner: inner["base64"] if isinstance(inner, dict) else inner,
    "$timestamp": lambda inner: moment_at(1_000_000 * int(inner["t"])).isoformat(),
}


def _patch(how: Values) -> Patch:
    updated = parsed(how["updatedFields"]) if isinstance(how.get("updatedFields"), str) else how.get("updatedFields")
    truncated = tuple((each["field"], int(each["size"])) for each in how.get("truncatedArrays") or ())
    fields = {_column(path): plain(value) for path, value in (updated or {}).items()}
    return Patch(fields, tuple(map(_column, how.get("removedFields") or ())), truncated)


def patched(row: Values, patch: Patch) -> Values:
    """The row with the fields of the patch; columns that hold nested documents as texts are opened and told again."""
    paths = [*patch.updated, *patch.removed, *(path for path, _ in patch.truncated)]
    now = {**row, **_opened(row, {path.partition(".")[0] for path in paths if "." in path})}
    for path, size in patch.truncated:
        holder, last = _holder(now, path)
        holder[last] = _as_value(holder[last])[:size]
    for path, value in patch.updated.items():
        holder, last = _holder(now, path)
        if isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    for path in patch.removed:
        holder, last = _holder(now, path)
        holder[last] = None
        if "." in path and isinstance(holder, dict):
            del holder[last]
    return now


def _opened(row: Values, columns: Iterable[str]) -> dict[str, Any]:
    return {name: _as_value(row[name]) for name in columns if name in row}


def _as_value(value: Any) -> Any:
    """A copy of our own; what Arrow gives back of a map are pairs."""
    if isinstance(value, str):
        return parsed(value)
    pairs = isinstance(value, list) and bool(value) and isinstance(value[0], tuple)
    return json.loads(json.dumps(dict(value) if pairs else value, default=_told))


def _told(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _holder(row: dict[str, Any], path: str) -> tuple[Any, Any]:
    """What holds the last part of a path, and how it is asked for there."""
    *way, last = path.split(".")
    here: Any = row
    for part in way:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        if here is None:
            raise Unreadable(f"it updates {path!r}, where the row has nothing")
    return here, int(last) if isinstance(here, list) else last


def _column(name: str) -> str:
    return "id" if name == ID else name
