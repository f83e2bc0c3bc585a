"""Maxwell's JSON: `data` is the row, `old` holds of an update only the columns that changed, as they were."""

from __future__ import annotations

from typing import Any

from headwater.capture.envelopes.message import Act, Message, Place, Unreadable, Values, names_of, parsed

ROWS = {"insert": Act.PUT, "bootstrap-insert": Act.PUT, "update": Act.PUT, "delete": Act.REMOVE}
KEY = "pk."
BESIDES = ("table-", "database-", "bootstrap-", "heartbeat")


def read(key: str | bytes | None, value: str | bytes | None) -> Message:
    told = parsed(value)
    if told is None:
        return _tombstone(parsed(key))
    if not isinstance(told, dict) or "type" not in told:
        raise Unreadable("it has no type: it is not Maxwell's JSON")
    kind, names = str(told["type"]), names_of(told.get("database"), told.get("table"))
    if kind not in ROWS:
        if kind.startswith(BESIDES):
            return Message(Act.NOTHING)
        raise Unreadable(f"it has the type {kind!r}: known are {', '.join(ROWS)}")
    row = told.get("data")
    if not isinstance(row, dict):
        raise Unreadable("it has no data")
    place = _place(told) if kind != "bootstrap-insert" else None
    if ROWS[kind] is Act.REMOVE:
        return Message(Act.REMOVE, names, old=row, place=place)
    old = {**row, **(told.get("old") or {})} if kind == "update" else None
    return Message(Act.PUT, names, old=old, row=row, place=place)


def _tombstone(keys: Any) -> Message:
    if not isinstance(keys, dict):
        return Message(Act.TOMBSTONE)
    row = {name.removeprefix(KEY): value for name, value in keys.items() if name.startswith(KEY)}
    return Message(Act.TOMBSTONE, names_of(keys.get("database"), keys.get("table")), key=row)


def _place(told: Values) -> Place | None:
    """`master.000006:800911`, if Maxwell is told to say it; its transaction ids begin anew with the server."""
    file, _, at = str(told.get("position") or "").rpartition(":")
    stem, _, number = file.rpartition(".")
    if not number.isdigit() or not at.isdigit():
        return None
    return Place(f"maxwell {told.get('server_id')} {stem}", (int(number), int(at)), 1000 * int(told.get("ts") or 0))
