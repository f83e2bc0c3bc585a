"""The embedded log: the protocol of `headwater.log.protocol` over a catalog and a folder of chunks.

Each act is in a file of its own; here they are put together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headwater.clock import Clock, system_clock
from headwater.errors import BadLogUrl, BadPartition, Corrupt, Fenced, Full, HeadwaterError, TopicNotFound
from headwater.log.embedded import chunks, snapshots, topics
from headwater.log.embedded.append import Append
from headwater.log.embedded.bound import NoRoom
from headwater.log.embedded.catalog import PATIENCE_S, Catalog
from headwater.log.embedded.committer import Committer
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.pins import Row, pin_in, pin_rows
from headwater.log.embedded.read import Scan, ends_at, first_beyond, offsets_from, time_before
from headwater.log.embedded.rowgroup import Handed, few_parts
from headwater.log.embedded.rows import KnownTopic, extents_of, load_topics, newest_append
from headwater.log.embedded.upkeep import Keeper
from headwater.log.embedded.waiting import Watch
from headwater.log.position import AppendNumber, Epoch, Position
from headwater.log.protocol import Appended, Covered, Expected, Extent, Part, Pin, Producer, Progress, Snapshot
from headwater.log.spec import Settings, TopicSpec
from headwater.log.topic import Topic
from headwater.log.versions import key_bytes
from headwater.records import RECORD_BYTES, refuse_large

T = TypeVar("T")

ROOM_S = 0.005
"""How often an append to a full topic looks whether there is room."""


class _Seen(threading.local):
    """The topics that a thread has looked up, each with the version of the catalog before that: while the catalog has
    it, they are as they were."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[int, KnownTopic]] = {}


class EmbeddedLog:
    def __init__(
        self, root: Path, *, clock: Clock = system_clock, disk: Disk | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.root = root.absolute()
        self.clock = clock
        self.disk = disk or Disk(self.root)
        path = self.root / "catalog.db"
        if not path.exists():
            try:
                self.disk.make_root()
            except OSError as error:
                raise BadLogUrl(url=f"file:{root}", why=error.strerror or str(error)) from error
        self.catalog = Catalog(path, patience_s=patience_s)
        self.committer = Committer(self.catalog, clock=clock, encode=self._encode)
        self._known: dict[str, KnownTopic] = {}
        self._seen = _Seen()
        self._watch = Watch(self.catalog.version, self._newest, listen=self.catalog.bell.listen)

    @property
    def url(self) -> str:
        return f"file:{self.root}"

    @property
    def upkeep(self) -> Keeper:
        return Keeper(self)

    def forget_mapped(self) -> None:
        """Let go of chunk files that this process has mapped."""
        chunks.forget_mapped()

    def close(self) -> None:
        self._watch.close()
        self.catalog.close()

    # --- topics ---

    def create(self, spec: TopicSpec) -> TopicSpec:
        return self._changed(spec.name, self.committer.run(lambda catalog: topics.create_in(catalog, spec)))

    def alter(self, name: str, *, schema: pa.Schema | None = None, settings: Settings | None = None) -> TopicSpec:
        altered = self.committer.run(lambda catalog: topics.alter_in(catalog, name, schema=schema, settings=settings))
        return self._changed(name, altered)

    def delete(self, name: str) -> None:
        self.committer.run(lambda catalog: topics.delete_in(catalog, name, now=self.clock()))
        self._known.pop(name, None)

    def _changed(self, name: str, spec: TopicSpec) -> TopicSpec:
        self._known.pop(name, None)
        return spec

    def topic(self, name: str) -> TopicSpec:
        """As it is now, also if another process has altered it."""
        return self._current(name).spec

    def _current(self, name: str) -> KnownTopic:
        version = self.catalog.version()  # asked first: what changes after it is noticed the next time
        seen = self._seen.topics.get(name)
        if seen is not None and seen[0] == version:
            self._known.setdefault(name, seen[1])
            return seen[1]
        known = self._known.get(name)
        if known is not None:
            with self.catalog.look() as catalog:
                known = known if topics.is_current(catalog, known) else None
        if known is None:
            with self.catalog.read() as catalog:
                known = self._known[name] = topics.find(catalog, name)
        self._seen.topics[name] = version, known
        return known

    def topics(self) -> list[TopicSpec]:
        with self.catalog.read() as catalog:
            return [known.spec for known in load_topics(catalog)]

    def known(self, name: str) -> KnownTopic:
        """As this process last saw it: enough for what names the schema's version and is checked again when written."""
        return self._known.get(name) or self._current(name)

    def _outdated(self, known: KnownTopic) -> bool:
        """Whether another process has made the topic anew or given it columns since we saw it; now we have seen it."""
        name = known.spec.name
        self._known.pop(name, None)
        try:
            now = self.known(name)
        except TopicNotFound:
            return False
        return (now.id, now.version) != (known.id, known.version)

    def extents(self, name: str) -> Mapping[int, Extent]:
        extents: Mapping[int, Extent] = self._of_topic(name, extents_of)
        return extents

    def _of_topic(self, name: str, ask: Callable[..., Any], *given: Any) -> Any:
        """Ask the catalog about a topic, as it is known."""

        def asked(known: Sequence[KnownTopic]) -> Any:
            with self.catalog.read() as catalog:
                return ask(catalog, *known, *given)

        return self._of_topics([name], asked)

    def _of_topics(self, names: Iterable[str], ask: Callable[[Sequence[KnownTopic]], T]) -> T:
        """Ask about topics; once more with fresh knowledge if one was made anew meanwhile."""
        names = list(dict.fromkeys(names))
        try:
            return ask([self.known(name) for name in names])
        except TopicNotFound:
            for name in names:
                self._known.pop(name, None)
            return ask([self.known(name) for name in names])

    # --- append ---

    def stage(self, topic: str, partition: int, records: pa.RecordBatch, *, producer: Producer | None = None) -> Part:
        known = self.known(topic)
        spec = known.spec
        if not 0 <= partition < spec.partitions:
            raise BadPartition(topic=topic, partition=partition, partitions=spec.partitions)
        if producer is not None:
            self.check(producer)
        return self._encode(known, partition, records, producer=producer)

    def stage_rows(self, topic: str, rows: Sequence[Mapping[str, Any]]) -> list[Part]:
        known = self.known(topic)
        few = few_parts(known, rows)
        return few if few is not None else Topic(self, known.spec).parts(rows)

    def peek(self, part: Part) -> Iterator[pa.RecordBatch]:
        if part.file is not None:
            yield from chunks.read_file(self.disk, part.file, part.crc)
        elif part.data is not None:
            schema, where = self.known(part.topic).stored(part.schema), f"{part.topic!r}, staged"
            yield chunks.read_message(part.data, part.crc, schema, catalog=self.catalog.path, where=where)

    def _encode(
        self, known: KnownTopic, partition: int, records: pa.RecordBatch, *, producer: Producer | None = None
    ) -> Part:
        spec, topic = known.spec, known.spec.name
        rows, file, data = records.num_rows, None, None
        if rows <= chunks.INLINE_ROWS and len(message := chunks.to_message(records)) <= chunks.INLINE_BYTES:
            data = message
            crc, size = chunks.crc(data), len(data)
        else:
            if records.nbytes > RECORD_BYTES:
                refuse_large(records, topic=topic)
            content = chunks.to_file(records)
            crc, size = chunks.crc(content), content.size
            who = f"{producer.name}-{producer.epoch}" if producer else "direct-0"
            file = chunks.new_name(topic, partition, who, "arrow")
            self.disk.write(file, content)
        keys: tuple[bytes, ...] = ()
        if spec.versioned:
            columns = [records.column(name).to_pylist() for name in spec.key]
            keys = tuple(key_bytes(key) for key in zip(*columns, strict=True))
        latest = chunks.max_time(records, spec.time)
        return Part(topic, partition, rows, known.version, crc, size, max_time=latest, file=file, data=data, keys=keys)

    def append(
        self,
        parts: Sequence[Part],
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        progress: Progress | None = None,
        expect: Expected | None = None,
        pin: Pin | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        for part in parts:
            if part.file is not None and not self.disk.exists(part.file):
                raise Corrupt(what="the staged chunk (its file is missing)", file=part.file)
        known = {name: self.known(name) for name in dict.fromkeys([*(part.topic for part in parts), *(expect or ())])}
        pinned = (pin.name, self._pin_rows(pin)) if pin is not None else None
        wanted = Append(parts, known, producer, sequence, progress, expect, pinned)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.committer.append(wanted, now=self.clock())
            except TopicNotFound:  # made anew, perhaps: the next append is to ask
                for name in known:
                    self._known.pop(name, None)
                raise
            except NoRoom as full:
                if time.monotonic() >= deadline:
                    raise Full(topic=full.topic, most_rows=full.most_rows, waited_s=timeout_s) from None
                time.sleep(ROOM_S)

    def append_rows(self, topic: str, rows: Sequence[Mapping[str, Any]], *, turn: int = 0) -> Appended:
        known = self.known(topic)
        if not known.spec.versioned and known.spec.settings.most_rows is None:
            handed = Handed(known, rows, turn)
            self.committer.append_rows([handed])
            if handed.error is not None:
                if self._outdated(known):
                    return self.append_rows(topic, rows, turn=turn)
                raise handed.error
            if handed.appended is not None:
                return handed.appended
            self.topic(topic)
        return self.append(Topic(self, known.spec).parts(rows))

    def append_each(
        self, topic: str, several: Sequence[Sequence[Mapping[str, Any]]], *, turn: int = 0
    ) -> list[Appended | HeadwaterError | None]:
        known = self.known(topic)
        handed = [Handed(known, rows, turn + number) for number, rows in enumerate(several)]
        if not known.spec.versioned and known.spec.settings.most_rows is None:
            self.committer.append_rows(handed)
            if any(each.answer is None for each in handed):
                self.topic(topic)
            refused = [each.rows for each in handed if each.error is not None]
            if refused and self._outdated(known):
                again = iter(self.append_each(topic, refused, turn=turn))
                return [next(again) if each.error is not None else each.answer for each in handed]
        return [each.answer for each in handed]

    def begin(self, producer: str) -> Producer:
        statement = (
            "INSERT INTO producers(name, epoch) VALUES (?, 1)"
            " ON CONFLICT(name) DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
        )
        epoch: Any = self.committer.run(lambda catalog: catalog.execute(statement, (producer,)).get)
        return Producer(producer, Epoch(epoch))

    def check(self, producer: Producer) -> None:
        with self.catalog.look() as catalog:
            current: Any = catalog.execute("SELECT epoch FROM producers WHERE name = ?", (producer.name,)).get
        if current is not None and current > producer.epoch:
            raise Fenced(producer=producer.name, epoch=producer.epoch, current=current)

    def covered(self, producer: str, *, at: AppendNumber | None = None, sequence: int | None = None) -> Covered | None:
        with self.catalog.look() as catalog:
            rows: Any = catalog.execute(
                "SELECT number, sequence, progress_start, progress_end, epoch FROM appends WHERE producer = ?1"
                " AND progress_end IS NOT NULL AND (number <= ?2 OR ?2 IS NULL) AND (sequence = ?3 OR ?3 IS NULL)"
                " ORDER BY sequence DESC LIMIT 1",
                (producer, at, sequence),
            ).fetchall()
        for number, found, start, end, epoch in rows:
            return Covered(number, found, Progress(Position.parse(start), Position.parse(end)), Epoch(epoch))
        return None

    def versions(self, topic: str, keys: Sequence[tuple[Any, ...]]) -> list[int]:
        known = self.known(topic)
        query = "SELECT version FROM versions WHERE topic = ? AND key = ?"
        with self.catalog.read() as catalog:
            return [int(catalog.execute(query, (known.id, key_bytes(key))).get or 0) for key in keys]

    # --- pins ---

    def pin(self, name: str, position: Position, *, topics: Sequence[str]) -> None:
        rows = self._pin_rows(Pin(name, position, tuple(topics)))
        self.committer.run(lambda catalog: pin_in(catalog, name, rows))

    def _pin_rows(self, pin: Pin) -> list[Row]:
        return pin_rows(pin.name, pin.position, [self.known(topic) for topic in dict.fromkeys(pin.topics)])

    def unpin(self, name: str) -> None:
        self.committer.run(lambda catalog: catalog.execute("DELETE FROM pins WHERE name = ?", (name,)).fetchall())

    # --- read ---

    def snapshot(
        self,
        topics: Sequence[str],
        *,
        after: Snapshot | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Snapshot:
        after = after or Snapshot(AppendNumber(0), Position())

        def ask(known: Sequence[KnownTopic]) -> Snapshot:
            if max_bytes is None:
                with self.catalog.look() as catalog:
                    newest = snapshots.newest(catalog, known)
                if max_rows is None or snapshots.rows_since(newest, after) <= max_rows:
                    return newest
            with self.catalog.read() as catalog:
                return snapshots.limited(catalog, known, after, max_rows=max_rows, max_bytes=max_bytes)

        return self._of_topics(topics, ask)

    def position_at(self, topic: str, number: AppendNumber) -> Mapping[int, int]:
        ends: Mapping[int, int] = self._of_topic(topic, ends_at, number)
        return ends

    def append_after(self, topic: str, position: Position) -> AppendNumber | None:
        number: int | None = self._of_topic(topic, first_beyond, position.as_dict().get(topic, {}))
        return AppendNumber(number) if number is not None else None

    def max_time(self, topic: str, partition: int, offset: int) -> int | None:
        known = self.known(topic)
        if known.spec.time is None:
            return None
        with self.catalog.read() as catalog:
            before, inside = time_before(catalog, known, partition, offset)
        if inside is None:
            return before
        scan = Scan(self.catalog, self.disk, known, partition, inside, offset)
        times = [chunks.max_time(batch, known.spec.time) for batch in scan.batches([known.spec.time], metadata=False)]
        return max((time for time in (before, *times) if time is not None), default=None)

    def position_from(self, topic: str, time_us: int) -> Mapping[int, int]:
        found: Mapping[int, int] = self._of_topic(topic, offsets_from, time_us)
        return found

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
        known = self._current(topic)
        if not 0 <= partition < known.spec.partitions:
            raise BadPartition(topic=topic, partition=partition, partitions=known.spec.partitions)
        return Scan(self.catalog, self.disk, known, partition, start, end).batches(columns, metadata=metadata)

    def changed(self) -> int:
        return self.catalog.version()

    def wait(self, after: AppendNumber, timeout_s: float) -> AppendNumber:
        return AppendNumber(self._watch.wait(after, timeout_s))

    def _newest(self) -> int:
        with self.catalog.look() as catalog:
            return newest_append(catalog)
