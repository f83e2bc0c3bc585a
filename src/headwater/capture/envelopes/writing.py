"""A table topic told in Debezium's envelope, for its consumers.

Records of one append have no order but that of each key: from them it is told what became of every key. An update is
the old row and the new one; a delete is followed by a tombstone; a changed key is a delete, a tombstone and a new row.
An upsert topic does not hold old rows: `before` is null, and of a delete it has only the key, as PostgreSQL tells it
with REPLICA IDENTITY DEFAULT.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from headwater.capture.envelopes.schemas import key_schema, plain_row, value_schema
from headwater.clock import Clock, system_clock
from headwater.errors import UsageError
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.records import APPENDED_AT, DELETED, OFFSET, WEIGHT

Record = dict[str, Any]
Key = tuple[Any, ...]
CONNECTOR = "headwater"
WAIT_S = 1.0


@dataclass(frozen=True)
class Change:
    """What became of a row, and the record that says so."""

    op: str
    before: Record | None
    after: Record | None
    record: Record


@dataclass(frozen=True)
class Envelope:
    """A message as a Debezium consumer takes it, both parts JSON; a value of None is a tombstone."""

    key: str
    value: str | None
    position: Position
    """Where to go on behind it, and behind all of its append in this partition."""


def envelopes(
    log: Log,
    topic: str,
    start: Position | None = None,
    *,
    timeout_s: float | None = 0.0,
    schemas: bool = False,
    clock: Clock = system_clock,
) -> Iterator[Envelope]:
    """From `start` on, or the beginning, until nothing came for `timeout_s`; None goes on forever.

    With `schemas`, each part has its schema beside it, as Kafka Connect's JSON has it.
    """
    spec = log.topic(topic)
    if spec.kind != "table" or not spec.key:
        raise UsageError(what=f"topic {topic!r} is no table with a key", do="Debezium's envelope tells rows of a table")
    writer = _Writer(log, spec, schemas, clock)
    here = start or Position.of({topic: {p: extent.start for p, extent in log.extents(topic).items()}})
    writer.know(here)
    quiet_since = time.monotonic()
    while True:
        now = log.snapshot([topic])
        for partition in range(spec.partitions):
            for records in _appends(log, spec, partition, here, now.position):
                here = Position.of({topic: {**here.as_dict().get(topic, {}), partition: records[-1][OFFSET] + 1}})
                yield from writer.messages(partition, records, here)
                quiet_since = time.monotonic()
        left = WAIT_S if timeout_s is None else quiet_since + timeout_s - time.monotonic()
        if left <= 0:
            return
        log.wait(now.number, min(left, WAIT_S))


def _appends(log: Log, spec: TopicSpec, partition: int, start: Position, end: Position) -> Iterator[list[Record]]:
    """The records of an append, or of several that are of the same microsecond."""
    low, high = start.offset(spec.name, partition), end.offset(spec.name, partition)
    if high > low:
        scanned = log.scan(spec.name, partition, low, high, metadata=True)
        records = (record for batch in scanned for record in batch.to_pylist())
        for _, some in groupby(records, key=lambda record: record[APPENDED_AT]):
            yield list(some)


class _Writer:
    def __init__(self, log: Log, spec: TopicSpec, schemas: bool, clock: Clock) -> None:
        self._log = log
        self._spec = spec
        self._clock = clock
        self._live: set[Key] = set()
        """In an upsert topic, the keys that have a row."""
        schema, _, table = spec.name.rpartition(".")
        database = Path(log.url.partition(":")[2]).name
        self._where = {"db": database, "schema": schema, "table": table}
        self._version = version("headwater")
        self._schemas = (key_schema(spec), value_schema(spec)) if schemas else None

    def know(self, start: Position) -> None:
        """Learn which rows are there at the start."""
        if not self._spec.upsert:
            return
        for partition, extent in self._log.extents(self._spec.name).items():
            end = start.offset(self._spec.name, partition)
            columns = [*self._spec.key, DELETED]
            for batch in self._log.scan(self._spec.name, partition, extent.start, end, columns=columns):
                for record in batch.to_pylist():
                    (self._live.discard if record[DELETED] else self._live.add)(self._key(record))

    def messages(self, partition: int, records: list[Record], after: Position) -> Iterator[Envelope]:
        for change in self._upserts(records) if self._spec.upsert else self._weights(records):
            told = change.after or change.before or {}
            key = self._wrapped({name: told[name] for name in self._spec.key}, 0)
            yield Envelope(key, self._wrapped(self._value(partition, change), 1), after)
            if change.op == "d":
                yield Envelope(key, None, after)

    # --- what became of rows ---

    def _upserts(self, records: list[Record]) -> Iterator[Change]:
        for record in records:
            key, there = self._key(record), self._key(record) in self._live
            if not record[DELETED]:
                self._live.add(key)
                yield Change("u" if there else "c", None, self._row(record), record)
            elif there:
                self._live.discard(key)
                yield Change("d", self._row(record), None, record)

    def _weights(self, records: list[Record]) -> list[Change]:
        """Each change stands where its last record does."""
        by_key: dict[Key, list[tuple[int, Record]]] = {}
        for place, record in enumerate(records):
            if abs(record[WEIGHT]) != 1:
                what = f"topic {self._spec.name!r}, offset {record[OFFSET]}: a weight of {record[WEIGHT]}, of a row"
                raise UsageError(what=what, do="Only tables whose rows differ in their key can be told as changes")
            by_key.setdefault(self._key(record), []).append((place, record))
        told = [each for placed in by_key.values() for each in self._of_key(placed)]
        return [change for _, change in sorted(told, key=lambda each: each[0])]

    def _of_key(self, placed: list[tuple[int, Record]]) -> Iterator[tuple[int, Change]]:
        ordered = _in_order([(self._row(record), record[WEIGHT]) for _, record in placed])
        if not ordered:  # a new row before the old one: only what they come to in the end is certain
            placed = _net(placed, self._row)
        gone: tuple[int, Record] | None = None
        for place, record in placed:
            row = self._row(record)
            if record[WEIGHT] > 0:
                yield place, Change("u" if gone else "c", self._row(gone[1]) if gone else None, row, record)
                gone = None
            else:
                gone = (place, record)
        if gone is not None:
            yield gone[0], Change("d", self._row(gone[1]), None, gone[1])

    def _key(self, record: Record) -> Key:
        return tuple(record[name] for name in self._spec.key)

    def _row(self, record: Record) -> Record:
        return {name: record[name] for name in self._spec.schema.names}

    # --- JSON ---

    def _value(self, partition: int, change: Change) -> Record:
        appended = round(change.record[APPENDED_AT].timestamp() * 1_000_000)
        now = self._clock()
        source = {
            "version": self._version,
            "connector": CONNECTOR,
            "name": CONNECTOR,
            **_times(appended),
            "snapshot": "false",
            **self._where,
            "sequence": None,
            "txId": None,
            "lsn": None,
            "xmin": None,
            "partition": partition,
            "offset": change.record[OFFSET],
        }
        rows = {
            name: plain_row(row, self._spec.schema) if row is not None else None
            for name, row in (("before", change.before), ("after", change.after))
        }
        return {**rows, "source": source, "op": change.op, **_times(now), "transaction": None}

    def _wrapped(self, told: Record, part: int) -> str:
        if part == 0:
            told = plain_row(told, self._spec.schema)
        if self._schemas is not None:
            told = {"schema": self._schemas[part], "payload": told}
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _times(micros: int) -> dict[str, int]:
    return {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}


def _in_order(changes: Iterable[tuple[Record, int]]) -> bool:
    """Whether rows come and go one after the other, each going as it came."""
    now: Record | None = None
    known = False
    for row, sign in changes:
        if known and (now is not None if sign > 0 else now != row):
            return False
        now, known = (row if sign > 0 else None), True
    return True


def _net(placed: list[tuple[int, Record]], row_of: Any) -> list[tuple[int, Record]]:
    """What is left when equal rows that come and go cancel out: the old row, then the new one."""
    left: list[tuple[int, Record]] = []
    for place, record in placed:
        row = row_of(record)
        against = next((each for each in left if row_of(each[1]) == row and each[1][WEIGHT] != record[WEIGHT]), None)
        if against is not None:
            left.remove(against)
        else:
            left.append((place, record))
    return sorted(left, key=lambda each: (each[1][WEIGHT], each[0]))
