"""The embedded log: the protocol of `headwater.log.protocol` over a catalog and a folder of chunks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
from pyarrow import ipc

from headwater.clock import Clock, system_clock
from headwater.errors import BadLogUrl, BadPartition, Corrupt, Fenced, TopicMismatch, TopicNotFound
from headwater.log.embedded import chunks
from headwater.log.embedded.append import append_in
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.disk import Disk
from headwater.log.position import AppendNumber, Epoch, Position
from headwater.log.protocol import Appended, Covered, Part, Producer, Progress, Snapshot, TopicSpec
from headwater.records import APPENDED_AT, OFFSET, PARTITION, TIMESTAMP

POLL_S = 0.005


class EmbeddedLog:
    def __init__(self, root: Path, *, clock: Clock = system_clock, disk: Disk | None = None) -> None:
        self.root = root.absolute()
        self._clock = clock
        self._disk = disk or Disk()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadLogUrl(url=f"file:{root}", why=error.strerror or str(error)) from error
        self._catalog = Catalog(self.root / "catalog.db")
        self._known: dict[str, tuple[int, TopicSpec]] = {}

    @property
    def url(self) -> str:
        return f"file:{self.root}"

    # --- topics ---

    def create(self, spec: TopicSpec) -> TopicSpec:
        with self._catalog.write() as catalog:
            row = catalog.execute(_TOPIC + " WHERE name = ?", (spec.name,)).fetchone()
            if row is None:
                schema = spec.schema.serialize().to_pybytes()
                catalog.execute(
                    "INSERT INTO topics(name, schema, key, time, kind, partitions) VALUES (?, ?, ?, ?, ?, ?)",
                    (spec.name, schema, json.dumps(spec.key), spec.time, spec.kind, spec.partitions),
                )
                return spec
        found = _spec(row)[1]
        for part in ("schema", "key", "time", "kind", "partitions"):
            if getattr(found, part) != getattr(spec, part):
                told = f"{part}: it has {_told(getattr(found, part))}, declared is {_told(getattr(spec, part))}"
                raise TopicMismatch(topic=spec.name, difference=told)
        return found

    def topic(self, name: str) -> TopicSpec:
        return self._topic(name)[1]

    def topics(self) -> list[TopicSpec]:
        with self._catalog.read() as catalog:
            return [_spec(row)[1] for row in catalog.execute(_TOPIC + " ORDER BY name")]

    def _topic(self, name: str) -> tuple[int, TopicSpec]:
        if name not in self._known:
            with self._catalog.read() as catalog:
                row = catalog.execute(_TOPIC + " WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise TopicNotFound(topic=name, known=[spec.name for spec in self.topics()])
            self._known[name] = _spec(row)
        return self._known[name]

    # --- append ---

    def stage(self, topic: str, partition: int, records: pa.RecordBatch, *, producer: Producer | None = None) -> Part:
        spec = self.topic(topic)
        if not 0 <= partition < spec.partitions:
            raise BadPartition(topic=topic, partition=partition, partitions=spec.partitions)
        if producer is not None:
            self.check(producer)
        return chunks.encode(
            records, topic=topic, partition=partition, root=self.root, disk=self._disk, producer=producer
        )

    def append(
        self,
        parts: Sequence[Part],
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        progress: Progress | None = None,
    ) -> Appended:
        for part in parts:
            if part.file is not None and not os.path.exists(self.root / part.file):
                raise Corrupt(what="the staged chunk (its file is missing)", file=part.file)
        ids = {part.topic: self._topic(part.topic)[0] for part in parts}
        with self._catalog.write() as catalog:
            return append_in(
                catalog, parts, ids, now=self._clock(), producer=producer, sequence=sequence, progress=progress
            )

    def begin(self, producer: str) -> Producer:
        with self._catalog.write() as catalog:
            row = catalog.execute(
                "INSERT INTO producers(name, epoch) VALUES (?, 1)"
                " ON CONFLICT(name) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
                (producer,),
            ).fetchone()
        assert row is not None
        return Producer(producer, Epoch(row[0]))

    def check(self, producer: Producer) -> None:
        with self._catalog.read() as catalog:
            row = catalog.execute("SELECT epoch FROM producers WHERE name = ?", (producer.name,)).fetchone()
        if row is not None and row[0] > producer.epoch:
            raise Fenced(producer=producer.name, epoch=producer.epoch, current=row[0])

    def covered(self, producer: str, *, at: AppendNumber | None = None) -> Covered | None:
        with self._catalog.read() as catalog:
            row = catalog.execute(
                "SELECT number, sequence, progress_start, progress_end FROM appends"
                " WHERE producer = ? AND progress_end IS NOT NULL AND number <= ? ORDER BY sequence DESC LIMIT 1",
                (producer, _newest(catalog) if at is None else at),
            ).fetchone()
        if row is None:
            return None
        return Covered(row[0], row[1], Progress(Position.parse(row[2]), Position.parse(row[3])))

    # --- read ---

    def snapshot(
        self, topics: Sequence[str], *, after: Snapshot | None = None, max_rows: int | None = None
    ) -> Snapshot:
        after = after or Snapshot(AppendNumber(0), Position())
        known = {name: self._topic(name) for name in topics}
        with self._catalog.read() as catalog:
            newest = _newest(catalog)

            def at(number: int) -> Position:
                return Position.of({name: _ends_at(catalog, known[name], number) for name in topics})

            def rows(number: int) -> int:
                return _count(at(number)) - _count(after.position)

            end = newest
            if max_rows is not None and rows(newest) > max_rows:
                end = _last(after.number, newest, lambda number: rows(number) <= max_rows)
                if rows(end) == 0:  # the next append is larger than the limit: it is a batch of its own
                    end = _last(after.number, newest, lambda number: rows(number) == 0) + 1
            return Snapshot(AppendNumber(end), at(end))

    def position_at(self, topic: str, number: AppendNumber) -> Mapping[int, int]:
        known = self._topic(topic)
        with self._catalog.read() as catalog:
            return _ends_at(catalog, known, number)

    def scan(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        metadata: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        number, spec = self._topic(topic)
        where = f"{topic!r}, partition {partition}"
        with self._catalog.read() as catalog:
            found: list[Any] = catalog.execute(_CHUNKS, (number, partition, start, end)).fetchall()
        for first, last, crc, file, data, appended_at in found:
            if data is not None:
                batch = chunks.decode_inline(
                    data, crc, spec.stored, catalog=self._catalog.path, where=f"{where}, offset {first}"
                )
            else:
                batch = chunks.map_file(self.root / file, crc)
            skip = max(start - first, 0)
            batch = batch.slice(skip, min(end, last) - first - skip)
            if columns is not None:
                batch = batch.select(list(columns))
            yield _with_metadata(batch, partition, first + skip, appended_at) if metadata else batch

    def wait(self, after: AppendNumber, timeout_s: float) -> AppendNumber:
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._catalog.version()
            with self._catalog.read() as catalog:
                newest = _newest(catalog)
            if newest > after:
                return AppendNumber(newest)
            while self._catalog.version() == version:
                if time.monotonic() >= deadline:
                    return AppendNumber(newest)
                time.sleep(POLL_S)

    def close(self) -> None:
        self._catalog.close()


_TOPIC = "SELECT id, name, schema, key, time, kind, partitions FROM topics"
_CHUNKS = """
SELECT start, "end", crc, file, data, appended_at FROM chunks JOIN appends ON number = append
WHERE topic = ? AND partition = ? AND "end" > ? AND start < ? ORDER BY "end"
"""


def _spec(row: Any) -> tuple[int, TopicSpec]:
    number, name, schema, key, time_column, kind, partitions = row
    spec = TopicSpec(
        name=name,
        schema=ipc.read_schema(pa.py_buffer(schema)),
        key=tuple(json.loads(key)),
        time=time_column,
        kind=kind,
        partitions=partitions,
    )
    return number, spec


def _told(part: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in part) if isinstance(part, pa.Schema) else repr(part)


def _newest(catalog: apsw.Connection) -> int:
    return int(catalog.execute("SELECT coalesce(max(number), 0) FROM appends").get)


def _ends_at(catalog: apsw.Connection, topic: tuple[int, TopicSpec], number: int) -> dict[int, int]:
    ends = {}
    for partition in range(topic[1].partitions):
        row = catalog.execute(
            'SELECT "end" FROM chunks WHERE topic = ? AND partition = ? AND append <= ?'
            ' ORDER BY append DESC, "end" DESC LIMIT 1',
            (topic[0], partition, number),
        ).fetchone()
        ends[partition] = row[0] if row else 0
    return ends


def _count(position: Position) -> int:
    return sum(offset for _, by in position.ends for _, offset in by)


def _last(low: int, high: int, holds: Any) -> int:
    """The greatest number in low..high for which a property that holds up to some point, and at low, holds."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _with_metadata(batch: pa.RecordBatch, partition: int, first: int, appended_at: int) -> pa.RecordBatch:
    rows = batch.num_rows
    extra = {
        PARTITION: pa.array(np.full(rows, partition, np.int32)),
        OFFSET: pa.array(np.arange(first, first + rows, dtype=np.int64)),
        APPENDED_AT: pa.array(np.full(rows, appended_at, np.int64)).cast(TIMESTAMP),
    }
    for name, column in extra.items():
        batch = batch.append_column(name, column)
    return batch
