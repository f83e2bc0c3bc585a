"""Random changes, told by writers of Debezium's and Maxwell's messages that know nothing of ours, some delivered again,
read with crashes in between: the topic's weights add up to the plain table."""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.capture.envelopes.capture import EnvelopeCapture
from headwater.capture.envelopes.writing import envelopes
from headwater.capture.spec import CaptureSettings, CaptureSpec
from headwater.log import TopicSpec
from headwater.records import schema_of
from tests.capture.replay import replayed

Row = dict[str, Any]
Message = dict[str, str | None]
COLUMNS = {"id": "int64", "part": "string", "name": "string", "large": "string"}
UNSENT = "__debezium_unavailable_value"
COLUMN_TYPES = [("int64", "id"), ("string", "part"), ("string", "name"), ("string", "large")]


@dataclass
class Table:
    """The table itself: the oracle. Each change is what a database would tell: before, after, in which transaction."""

    rows: dict[tuple[int, str], Row] = field(default_factory=dict)

    def changes(self, chosen: random.Random, count: int) -> Iterator[tuple[str, Row | None, Row | None]]:
        for _ in range(count):
            key = (chosen.randint(1, 6), chosen.choice("ab"))
            old = self.rows.get(key)
            new = {"id": key[0], "part": key[1], "name": chosen.choice("xyz"), "large": chosen.choice(["l1", "l2"])}
            act = chosen.random()
            if old is None:
                self.rows[key] = new
                yield "c", None, new
            elif act < 0.55:
                self.rows[key] = new
                yield "u", old, new
            elif act < 0.7:
                moved = {**new, "id": chosen.randint(7, 9)}
                there = (moved["id"], moved["part"])
                if there not in self.rows:
                    del self.rows[key]
                    self.rows[there] = moved
                    yield "move", old, moved
            elif act < 0.97:
                del self.rows[key]
                yield "d", old, None
            else:
                self.rows.clear()
                yield "t", None, None

    def listed(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.rows.values()), key=repr)


class Debezium:
    """As its PostgreSQL connector writes: `full` is REPLICA IDENTITY FULL; changes of a key are d, tombstone, c."""

    truncates = True

    def __init__(self, chosen: random.Random, *, full: bool, schemas: bool) -> None:
        self._chosen, self._full, self._schemas = chosen, full, schemas
        self._commit, self._lsn = 1000, 5000

    def messages(self, op: str, old: Row | None, new: Row | None) -> list[Message]:
        if self._chosen.random() < 0.5:
            self._commit = self._commit + 100
            self._lsn -= self._chosen.randint(0, 40)  # a transaction that began before the last one was committed
        self._lsn += self._chosen.randint(0, 9)
        if op == "move":
            return [*self._row("d", old, None), *self._row("c", old, new)]
        if op == "t":
            return [{"key": None, "value": self._value("t", None, None)}]
        return self._row(op, old, new)

    def _row(self, op: str, old: Row | None, new: Row | None) -> list[Message]:
        row = new or old or {}
        key = json.dumps(self._wrap({"id": row["id"], "part": row["part"]}, None))
        before: Row | None = None
        if old is not None and self._full and op != "c":
            before = old
        elif old is not None and op == "d":
            before = {**dict.fromkeys(old), "id": old["id"], "part": old["part"]}
        after = dict(new) if new is not None else None
        if after is not None and old is not None and after["large"] == old["large"]:
            after["large"] = UNSENT
        told: list[Message] = [{"key": key, "value": self._value(op, before, after)}]
        return told + ([{"key": key, "value": None}] if op == "d" else [])

    def _value(self, op: str, before: Row | None, after: Row | None) -> str:
        source = {
            "version": "3.6.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": self._commit,
            "snapshot": "false",
            "db": "shop",
            "sequence": json.dumps([str(self._commit), str(self._lsn)]),
            "schema": "public",
            "table": "people",
            "lsn": self._lsn,
        }
        fields = [{"type": kind, "optional": True, "field": name} for kind, name in COLUMN_TYPES]
        envelope = [{"type": "struct", "fields": fields, "field": part} for part in ("before", "after")]
        told = {"before": before, "after": after, "source": source, "op": op, "ts_ms": self._commit + 5}
        return json.dumps(self._wrap({**told, "transaction": None}, envelope))

    def _wrap(self, told: Row, fields: Any) -> Row:
        return {"schema": {"type": "struct", "fields": fields}, "payload": told} if self._schemas else told


class Maxwell:
    """Of an update `old` has only what changed. It does not tell of TRUNCATE."""

    truncates = False

    def __init__(self, chosen: random.Random, *, full: bool, schemas: bool) -> None:
        self._positions, self._at = full, 4
        self._chosen = chosen

    def messages(self, op: str, old: Row | None, new: Row | None) -> list[Message]:
        self._at += self._chosen.randint(0, 300)
        kind = {"c": "insert", "u": "update", "move": "update", "d": "delete"}[op]
        told: Row = {
            "database": "public",
            "table": "people",
            "type": kind,
            "ts": self._at,
            "xid": 7,
            "data": new or old,
        }
        if kind == "update":
            told["old"] = {name: value for name, value in (old or {}).items() if value != (new or {})[name]}
        if self._positions:
            told |= {"position": f"master.000006:{self._at}", "server_id": 1}
        return [{"key": None, "value": json.dumps(told)}]


class Crashed(Exception):
    pass


class Crashing:
    """A log whose appends end in a crash, before or after they are made, when their turn has come."""

    def __init__(self, log: hw.Log, turns: dict[int, str]) -> None:
        self._log, self._turns, self._count = log, turns, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *given: Any, **named: Any) -> Any:
        self._count += 1
        turn = self._turns.get(self._count)
        if turn == "before":
            raise Crashed
        appended = self._log.append(*given, **named)
        if turn == "after":
            raise Crashed
        return appended


def drain(log: hw.Log, spec: CaptureSpec, turns: dict[int, str] | None = None) -> EnvelopeCapture:
    """Run until all messages are read; after a crash, a new run goes on."""
    crashing: Any = Crashing(log, turns or {})
    while True:
        capture = EnvelopeCapture(spec, crashing)
        stopped = threading.Event()
        goal = capture.goal()
        watch = capture._log.wait  # type: ignore[attr-defined]

        def wait(after: Any, timeout_s: float, capture: EnvelopeCapture = capture, goal: int = goal) -> Any:
            if capture.reached(goal):
                stopped.set()  # noqa: B023
            return watch(after, 0)  # noqa: B023

        crashing.wait = wait
        try:
            capture.run(stopped)
        except Crashed:
            continue
        finally:
            del crashing.wait
        return capture


def declare(log: hw.Log, *, upsert: bool) -> hw.Topic:
    raw = TopicSpec("raw", schema_of({"key": "string", "value": "string"}), partitions=1)
    log.create(TopicSpec("people", schema_of(COLUMNS), key=("id", "part"), kind="table", upsert=upsert, partitions=2))
    return hw.Topic(log, log.create(raw))


@pytest.mark.parametrize("writer", [Debezium, Maxwell])
@given(seed=st.integers(0, 2**32), full=st.booleans(), schemas=st.booleans(), upsert=st.booleans())
def test_messages_replay_to_the_table(writer: Any, seed: int, full: bool, schemas: bool, upsert: bool) -> None:
    chosen = random.Random(seed)
    table = Table()
    told = writer(chosen, full=full, schemas=schemas)
    with tempfile.TemporaryDirectory() as folder:
        log = hw.open(f"file:{folder}/log")
        raw = declare(log, upsert=upsert)
        kind = "debezium" if writer is Debezium else "maxwell"
        spec = CaptureSpec("shop", f"{kind}:raw", {"public.people": "people"})
        messages: list[Message] = []
        delivered = 0
        for _ in range(chosen.randint(1, 3)):
            for op, old, new in table.changes(chosen, chosen.randint(1, 20)):
                if op == "t" and not told.truncates:
                    op_rows = [("d", {**row}, None) for row in _parsed(messages)]
                    messages += [each for change in op_rows for each in told.messages(*change)]
                else:
                    messages += told.messages(op, old, new)
            raw.append([dict(each) for each in messages[chosen.randint(0, delivered) :]])  # some of it again
            delivered = len(messages)
            turns = {chosen.randint(1, 6): chosen.choice(["before", "after"])}
            drain(log, spec, turns)
            assert replayed(log, "people") == table.listed()
        log.close()


def _parsed(messages: list[Message]) -> list[Row]:
    """The rows that there are by Maxwell's messages, read in the plainest way."""
    rows: dict[tuple[int, str], Row] = {}
    for each in messages:
        told = json.loads(each["value"] or "")
        old = {**told["data"], **told.get("old", {})}
        rows.pop((old["id"], old["part"]), None)
        if told["type"] != "delete":
            rows[told["data"]["id"], told["data"]["part"]] = told["data"]
    return list(rows.values())


@given(seed=st.integers(0, 2**32), upsert=st.booleans(), schemas=st.booleans())
def test_what_we_tell_in_debeziums_envelope_replays_to_the_table(seed: int, upsert: bool, schemas: bool) -> None:
    """A consumer that knows only Debezium's rules: c, u, r put the row after, d takes it away, by the message's key."""
    chosen = random.Random(seed)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        log = hw.open(f"file:{folder}/log")
        declare(log, upsert=upsert)
        people = hw.Topic(log, log.topic("people"))
        rows: dict[str, Row] = {}
        position = None
        for _ in range(chosen.randint(1, 3)):
            records: list[Row] = []
            for op, old, new in table.changes(chosen, chosen.randint(1, 12)):
                gone = list(_held(records, people)) if op == "t" else [old] if old is not None else []
                changes = [(row, -1) for row in gone] + ([(new, 1)] if new is not None else [])
                records += [_record(row, sign, upsert=upsert) for row, sign in changes]
            people.append(records)
            last: str | None = None
            for each in envelopes(log, "people", position, schemas=schemas):
                position = each.position
                key = each.key
                if each.value is None:
                    assert last == key, "a tombstone comes behind its delete"
                    continue
                told = json.loads(each.value)
                told = told["payload"] if schemas else told
                assert told["before"] == rows.get(key) or upsert
                assert (told["op"] == "c") == (key not in rows)
                if told["op"] == "d":
                    del rows[key]
                    last = key
                else:
                    rows[key], last = told["after"], None
            assert sorted((tuple(row.values()) for row in rows.values()), key=repr) == table.listed()
        log.close()


def _record(row: Row, sign: int, *, upsert: bool) -> Row:
    return {**row, "_deleted": sign < 0} if upsert else {**row, "_weight": sign}


def _held(records: list[Row], people: hw.Topic) -> Iterator[Row]:
    rows: dict[tuple[int, str], Row] = {}
    for record in [*people.read().to_pylist(), *records]:
        row = {name: record[name] for name in COLUMNS}
        gone = record.get("_deleted") or record.get("_weight", 1) < 0
        rows[row["id"], row["part"]] = {} if gone else row
    yield from (row for row in rows.values() if row)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(hw.errors.BadCapture, match="times is 'hours'"):
        CaptureSettings(times="hours")  # type: ignore[arg-type]
