"""Debezium's envelope, with or without the schema beside it, of every connector.

{"before", "after", "source", "op", "ts_ms", ...}      op: c u d r, t truncate, m a message of an application
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headwater.capture.envelopes import mongodb
from headwater.capture.envelopes.message import Act, Message, Place, Told, Unreadable, Values, names_of, parsed
from headwater.capture.envelopes.values import Meaning, read_value
from headwater.capture.position import lsn_text

ROWS = {"c": Act.PUT, "r": Act.PUT, "u": Act.PUT, "d": Act.REMOVE}
BESIDES = ("status", "ddl", "tableChanges")
"""What messages have that are no changes: bounds of a transaction, DDL. A heartbeat has only a time."""


def read(key: str | bytes | None, value: str | bytes | None) -> Message:
    keys, _ = _unwrapped(parsed(key))
    keys = keys if isinstance(keys, dict) else None
    told, schema = _unwrapped(parsed(value))
    if told is None:
        return Message(Act.TOMBSTONE, key=mongodb.key(keys) if _of_mongodb(keys) else keys)
    if not isinstance(told, dict):
        raise Unreadable("it is not an object")
    op, source = told.get("op"), told.get("source") or {}
    if op is None:
        if any(name in told for name in BESIDES) or not told.keys() - {"ts_ms", "ts_us", "ts_ns"}:
            return Message(Act.NOTHING)
        raise Unreadable("it has no op: it is not Debezium's envelope (was it flattened, by ExtractNewRecordState?)")
    names = names_of(source.get("db"), source.get("schema"), source.get("table") or source.get("collection"))
    if op == "m":
        return _note(told.get("message") or {}, source)
    place = _place(source)
    if op == "t":
        return Message(Act.TRUNCATE, names, place=place)
    if op not in ROWS:
        raise Unreadable(f"it has the op {op!r}: known are c, u, d, r, t, m")
    if source.get("connector") == "mongodb":
        return mongodb.message(ROWS[op], names, keys, told, place)
    row, old = told.get("after"), told.get("before")
    if not isinstance(row, dict | None) or not isinstance(old, dict | None):
        raise Unreadable("the row before or after is not an object")
    if row is None and ROWS[op] is Act.PUT:
        raise Unreadable(f"it has the op {op!r} and no row after it")
    return Message(ROWS[op], names, keys, old, row if op != "d" else None, _types(schema), place=place)


def _note(told: Values, source: Values) -> Message:
    lsn = source.get("lsn")
    row = {
        "prefix": told.get("prefix") or "",
        "content": read_value(told.get("content") or "", pa.binary(), None, Meaning()),
        "lsn": lsn_text(int(lsn)) if lsn is not None else None,
        "transactional": source.get("txId") is not None,
    }
    return Message(Act.NOTE, row=row)


def _unwrapped(told: Any) -> tuple[Any, Values | None]:
    """What it says, and the schema beside it."""
    if isinstance(told, dict) and told.keys() == {"schema", "payload"}:
        return told["payload"], told["schema"]
    return told, None


def _of_mongodb(keys: Any) -> bool:
    """Its keys are texts of JSON, under one name."""
    return isinstance(keys, dict) and keys.keys() == {"id"} and isinstance(keys["id"], str) and keys["id"][:1] in '{"'


def _types(schema: Values | None) -> Mapping[str, Told]:
    for part in (schema or {}).get("fields") or ():
        if part.get("field") in ("after", "before"):
            return {each["field"]: _told(each) for each in part.get("fields") or ()}
    return {}


def _told(field: Values) -> Told:
    items = field.get("items")
    scale = int((field.get("parameters") or {}).get("scale", 0))
    return Told(field.get("type", ""), field.get("name") or "", scale, _told(items) if items else None)


# --- where a change stands at its source ---


def _place(source: Values) -> Place | None:
    """None: its connector does not say, or not yet."""
    connector = str(source.get("connector"))
    at = _PLACES[connector](source) if connector in _PLACES else None
    if at is None or None in at:
        return None
    history = [connector, source.get("name"), source.get("server_id"), _stem(source), source.get("partition")]
    return Place(" ".join(str(part) for part in history), at, int(source.get("ts_ms") or 0))


def _postgres(source: Values) -> tuple[Any, ...] | None:
    """Changes come in the order of commits, and within a transaction of the log; their own places alone do not grow."""
    committed, here = parsed(source["sequence"]) if source.get("sequence") else (None, None)
    return None if committed is None or here is None else (int(committed), int(here))


def _mysql(source: Values) -> tuple[Any, ...]:
    number = str(source.get("file") or "").rpartition(".")[2]
    return (int(number) if number.isdigit() else None, source.get("pos"), source.get("row"))


def _stem(source: Values) -> str:
    return str(source.get("file") or "").rpartition(".")[0]


def _oracle(source: Values) -> tuple[Any, ...] | None:
    scns = [str(source.get(name) or "") for name in ("commit_scn", "scn")]
    return tuple(map(int, scns)) if all(scn.isdigit() for scn in scns) else None


_PLACES: Mapping[str, Callable[[Values], tuple[Any, ...] | None]] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": lambda s: (s.get("commit_lsn"), s.get("change_lsn"), s.get("event_serial_no")),
    "db2": lambda s: (s.get("commit_lsn"), s.get("change_lsn")),
    "oracle": _oracle,
    "mongodb": lambda s: (s.get("ts_ms"), s.get("ord")),
    "headwater": lambda s: (s.get("offset"),),
}
