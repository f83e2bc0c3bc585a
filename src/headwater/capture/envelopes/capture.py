"""One run of reading a topic of messages into the topics of tables.

1  This run takes over: an older one is fenced. It goes on at the offsets that its last append covers.
2  Messages are read, and gathered by table.
3  For each table, those taken before are left out, the rows that the others tell of are looked up in its topic, and
   what changes is staged.
4  One append: the records, the furthest places taken, and the offsets up to which messages are read.
A TRUNCATE is an append of its own, behind all that came before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.current import removals
from headwater.capture.envelopes import debezium, maxwell
from headwater.capture.envelopes.folding import Folding, Taken
from headwater.capture.envelopes.message import Act, Message, Unreadable
from headwater.capture.envelopes.order import Order
from headwater.capture.envelopes.values import Meaning
from headwater.capture.held import records_of
from headwater.capture.postgres.messages import SCHEMA as NOTES
from headwater.capture.spec import CaptureSpec
from headwater.capture.status import CaptureStatus
from headwater.errors import BadCapture, BadMessage, TopicNotFound
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Part
from headwater.log.spec import TopicSpec
from headwater.records import OFFSET

FORMATS: dict[str, Callable[[Any, Any], Message]] = {"debezium": debezium.read, "maxwell": maxwell.read}
KEY, VALUE = "key", "value"
MOST = 10_000
"""Messages that one append takes in."""
WAIT_S = 0.1
DEAD = pa.schema(
    [
        ("record", pa.string()),
        ("error", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


class EnvelopeCapture:
    def __init__(self, spec: CaptureSpec, log: Log) -> None:
        settings = spec.settings
        if settings.outbox is not None or settings.wal_budget_bytes is not None or settings.poll is not None:
            raise BadCapture(what="outbox, wal_budget_bytes and poll are for databases", do="Leave them out")
        self.spec = spec
        self._log = log
        self._format, _, self._source = spec.url.partition(":")
        self._meaning = Meaning(settings.times, settings.decimals)
        self._appender: Appender | None = None
        self._foldings: dict[str, Folding] = {}
        self._gathered: dict[str, list[Taken]] = {}
        self._beside: dict[str, list[dict[str, Any]]] = {}
        self._counts = {"seen": 0, "dead": 0}

    def topics(self) -> dict[str, TopicSpec]:
        raw = self._raw()
        if VALUE not in raw.schema.names or raw.kind != "stream":
            raise BadCapture(
                what=f"topic {self._source!r} holds no messages: it has no column {VALUE!r}",
                do=f"Make it a stream with the columns {{'key': 'string', 'value': 'string'}}, {VALUE} being JSON",
            )
        if raw.partitions > 1 and not raw.key:
            raise BadCapture(
                what=f"topic {self._source!r} has {raw.partitions} partitions and no key: its messages have no order",
                do="Make it with partitions=1, or with key='key'",
            )
        return {table: self._target(table, topic) for table, topic in self.spec.tables.items()}

    def run(self, stopped: threading.Event) -> None:
        raw, tables = self._raw(), self.topics()
        appender = self._appender = Appender(self._log, self.spec.name)  # 1
        self._counts = {"seen": 0, "dead": 0, **(appender.state.get("counts") or {})}
        self._gathered, self._beside = {}, {}
        order = appender.state.get("order") or {}
        self._foldings = {
            table: Folding(self._log, spec, self._meaning, Order(order.get(table))) for table, spec in tables.items()
        }
        newest = AppendNumber(0)
        while not stopped.is_set():
            here = self._log.snapshot([raw.name])
            if here.position != appender.end:
                self._take(appender, raw, here.position, stopped)
            newest = self._log.wait(max(newest, here.number), WAIT_S)

    def goal(self) -> int:
        return self._log.snapshot([self._source]).position.total

    def reached(self, goal: int) -> bool:
        return self._appender is not None and self._appender.end.total >= goal

    def status(self) -> CaptureStatus:
        appender = self._appender
        phase, rows = ("streaming", appender.rows) if appender is not None else ("starting", 0)
        end = str(appender.end) if appender is not None else ""
        seen, dead = self._counts["seen"], self._counts["dead"]
        return CaptureStatus(self.spec.name, phase, rows, position=end, seen=seen, dead=dead)

    # --- the steps ---

    def _take(self, appender: Appender, raw: TopicSpec, until: Position, stopped: threading.Event) -> None:
        columns = [name for name in (KEY, VALUE) if name in raw.schema.names]
        ends = appender.end.as_dict().get(raw.name, {})
        count = 0
        for partition in range(raw.partitions):
            start, end = ends.get(partition, 0), until.offset(raw.name, partition)
            start = start or self._log.extents(raw.name)[partition].start
            for batch in self._log.scan(raw.name, partition, start, end, columns=columns, metadata=True):
                for record in batch.to_pylist():
                    if count >= MOST:
                        self._append(appender, raw, ends)
                        count = 0
                        if stopped.is_set():
                            return
                    self._message(appender, raw, partition, record, ends)
                    ends[partition] = record[OFFSET] + 1
                    count += 1
            ends[partition] = max(end, ends.get(partition, 0))
        self._append(appender, raw, ends)

    def _message(
        self, appender: Appender, raw: TopicSpec, partition: int, record: dict[str, Any], ends: dict[int, int]
    ) -> None:
        """Step 2."""
        offset = int(record[OFFSET])
        try:
            message = FORMATS[self._format](record.get(KEY), record[VALUE])
        except Unreadable as why:
            self._bad(partition, offset, str(why), record[VALUE])
            return
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # a part of it has another form
            self._bad(partition, offset, f"it is not as {self._format} writes it ({error})", record[VALUE])
            return
        table = self._table(message)
        if message.act is Act.NOTE:
            self._beside.setdefault(f"{self.spec.name}.messages", []).append(dict(message.row or {}))
        elif table is None or message.act is Act.NOTHING:
            return
        elif message.act is Act.TRUNCATE:
            self._append(appender, raw, ends)
            self._truncate(appender, raw, table, {**ends, partition: offset + 1})
        else:
            self._gathered.setdefault(table, []).append(Taken(message, partition, offset))

    def _append(self, appender: Appender, raw: TopicSpec, ends: dict[int, int]) -> None:
        """Steps 3 and 4."""
        parts: list[Part] = []
        for table, taken in self._gathered.items():
            folding = self._foldings[table]
            before = folding.seen
            changes = folding.changes(taken, lambda each, why: self._bad(each.partition, each.offset, why, None))
            self._counts["seen"] += folding.seen - before
            if changes:
                parts += appender.stage(folding.spec, records_of(folding.spec, changes))
        self._append_parts(appender, raw, parts, ends)

    def _truncate(self, appender: Appender, raw: TopicSpec, table: str, ends: dict[int, int]) -> None:
        spec = self._foldings[table].spec
        self._foldings[table].order.forget()
        parts = [
            self._log.stage(spec.name, partition, batch, producer=appender.producer)
            for partition, extent in self._log.extents(spec.name).items()
            for batch in removals(self._log, spec, partition, extent.end)
        ]
        self._append_parts(appender, raw, parts, ends)

    def _append_parts(self, appender: Appender, raw: TopicSpec, parts: list[Part], ends: dict[int, int]) -> None:
        for topic, rows in self._beside.items():
            schema, key = (NOTES, ("prefix",)) if topic.endswith(".messages") else (DEAD, ())
            spec = self._log.create(TopicSpec(topic, schema, key=key, partitions=1))
            parts = [*parts, *appender.stage(spec, pa.RecordBatch.from_pylist(rows, schema))]
        order = {table: folding.order.as_json() for table, folding in self._foldings.items()}
        end = Position.of({raw.name: ends})
        if end != appender.end:
            appender.append_at(parts, end, counts=dict(self._counts), order=order)
        self._gathered, self._beside = {}, {}

    def _bad(self, partition: int, offset: int, why: str, value: Any) -> None:
        if self.spec.settings.on_error == "stop":
            raise BadMessage(topic=self._source, partition=partition, offset=offset, why=why)
        if value is None:
            (batch,) = self._log.scan(self._source, partition, offset, offset + 1, columns=[VALUE])
            value = batch.column(VALUE)[0].as_py()
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        row = {"record": text, "error": why, "topic": self._source, "partition": partition, "offset": offset}
        self._beside.setdefault(f"{self.spec.name}.dead", []).append(row)
        self._counts["dead"] += 1

    # --- names ---

    def _table(self, message: Message) -> str | None:
        """Which of our tables it is about; a tombstone does not say, so only if there is but one."""
        if message.act is Act.TOMBSTONE and not message.names:
            return next(iter(self.spec.tables)) if len(self.spec.tables) == 1 and message.key else None
        return next((name for name in message.names if name in self.spec.tables), None)

    def _raw(self) -> TopicSpec:
        try:
            return self._log.topic(self._source)
        except TopicNotFound:
            do = f"Declare it before: app.topic({self._source!r}, {{'key': 'string', 'value': 'string'}}, partitions=1)"
            raise BadCapture(what=f"there is no topic {self._source!r} to read messages from", do=do) from None

    def _target(self, table: str, topic: str) -> TopicSpec:
        if "*" in table:
            raise BadCapture(what=f"{table!r}: messages are not read by pattern", do="Name each table and its topic")
        declare = f"Declare it before: app.topic({topic!r}, {{'id': 'int64', ...}}, key='id', kind='table')"
        try:
            spec = self._log.topic(topic)
        except TopicNotFound:
            raise BadCapture(what=f"there is no topic {topic!r} for table {table!r}", do=declare) from None
        if spec.kind != "table" or not spec.key:
            raise BadCapture(what=f"topic {topic!r}, for table {table!r}, is no table with a key", do=declare)
        return spec
