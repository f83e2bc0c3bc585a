"""What one transaction of the catalog is going to list, gathered so that many appends cost few statements.

Each statement lets other threads run and then waits for its turn again; a group of appends is therefore checked one by
one but listed together, by one statement a table, right before the commit or before anybody else reads those tables.
What one transaction has looked up and written the next one knows, unless another process wrote in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from headwater.errors import TopicNotFound
from headwater.log.embedded.rows import KnownTopic, parse_settings
from headwater.log.protocol import Part
from headwater.log.spec import Settings

_ROWS = 64
"""How many rows one statement inserts: SQLite takes some thousand values in one."""
_CHUNK = (
    'INSERT INTO chunks(topic, partition, start, "end", rows, append, last_append, schema, crc, size, appended_at,'
    " time_before, file, data, bounds) VALUES "
)
_APPEND = (
    "INSERT INTO appends(number, appended_at, position, producer, epoch, sequence, progress_start, progress_end)"
    " VALUES "
)
_VERSION = (
    "INSERT INTO versions(topic, key, version) VALUES (?, ?, ?)"
    " ON CONFLICT(topic, key) DO UPDATE SET version = excluded.version"
)
_MOST_VERSIONS = 10_000
"""So many keys' versions are remembered from one transaction to the next."""


@dataclass
class Memory:
    """What a catalog's writer knows of it: as it was left by its own last commit, while nobody else has written."""

    written_by_others: int = -1
    settings: dict[int, Settings] = field(default_factory=dict)
    last: tuple[int, int] | None = None
    """The newest append, and its time."""
    ends: dict[tuple[int, int], tuple[int, int | None]] = field(default_factory=dict)
    versions: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def forget(self) -> None:
        self.settings.clear()
        self.last = None
        self.ends.clear()
        self.versions.clear()

    def begin(self, catalog: apsw.Connection) -> None:
        """In a transaction that may write: so nobody else does from here on."""
        others = int(catalog.execute("PRAGMA data_version").get)
        if others != self.written_by_others or len(self.versions) > _MOST_VERSIONS:
            self.forget()
            self.written_by_others = others


class Transaction:
    def __init__(self, catalog: apsw.Connection, memory: Memory | None = None) -> None:
        self._catalog = catalog
        self._known = Memory() if memory is None else memory
        if memory is not None:
            memory.begin(catalog)
        self._moved: set[tuple[int, int]] = set()
        self._counted: set[tuple[int, bytes]] = set()
        self._chunks: list[tuple[Any, ...]] = []
        self._appends: list[tuple[Any, ...]] = []

    @property
    def catalog(self) -> apsw.Connection:
        """The connection, with all that was gathered so far written to it. Whoever asks for it may change anything."""
        self.flush()
        self._known.forget()
        return self._catalog

    @property
    def beside(self) -> apsw.Connection:
        """The same, but only to read, and to write what none of this is about: producers and pins."""
        self.flush()
        return self._catalog

    def settings(self, topic: KnownTopic) -> Settings:
        """As they are now: another process may have altered them."""
        settings = self._known.settings
        if topic.id not in settings:
            row: Any = self._catalog.execute("SELECT settings FROM topics WHERE id = ?", (topic.id,)).fetchone()
            if row is None:
                raise TopicNotFound(topic=topic.spec.name)
            settings[topic.id] = parse_settings(row[0])
        return settings[topic.id]

    def next_append(self, now: int) -> tuple[int, int]:
        return self.next_appends(1, now)

    def next_appends(self, count: int, now: int) -> tuple[int, int]:
        """The number of the first of `count` appends to come, and their time, which never goes back."""
        last = self._known.last
        if last is None:
            row: Any = self._catalog.execute(
                "SELECT number, appended_at FROM appends ORDER BY number DESC LIMIT 1"
            ).fetchone()
            last = (row[0], row[1]) if row else (0, 0)
        at = max(now, last[1])
        self._known.last = (last[0] + count, at)
        return last[0] + 1, at

    def add_append(self, row: tuple[Any, ...]) -> None:
        self._appends.append(row)

    def version_of(self, topic: KnownTopic, key: bytes) -> int:
        place = (topic.id, key)
        if place not in self._known.versions:
            found = self._catalog.execute("SELECT version FROM versions WHERE topic = ? AND key = ?", place).get
            self._known.versions[place] = int(found or 0)
        return self._known.versions[place]

    def count_versions(self, topic: KnownTopic, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._known.versions[topic.id, key] = self.version_of(topic, key) + 1
            self._counted.add((topic.id, key))

    def end_of(self, topic: KnownTopic, partition: int) -> int:
        return self._end(topic, (topic.id, partition))[0]

    def look_up(self, topics: Mapping[str, KnownTopic], parts: Sequence[Part]) -> None:
        """Where the partitions of these parts end, by one statement a topic. One that is not there is `TopicNotFound`:
        the topic is gone, or was made anew with fewer."""
        for name, topic in topics.items():
            places = {(topic.id, part.partition) for part in parts if part.topic == name}
            asked = [partition for _, partition in places - self._known.ends.keys()]
            if len(asked) > 1:
                marks = ", ".join("?" * len(asked))
                rows: Any = self._catalog.execute(
                    f'SELECT partition, "end", max_time FROM ends WHERE topic = ? AND partition IN ({marks})',
                    (topic.id, *asked),
                ).fetchall()
                self._known.ends.update({(topic.id, partition): (end, time) for partition, end, time in rows})
            for place in places:
                self._end(topic, place)

    def add_chunk(
        self,
        topic: KnownTopic,
        part: Part,
        number: int,
        at: int,
        *,
        last_number: int | None = None,
        bounds: bytes | None = None,
    ) -> int:
        """List the part at the end of its partition; returns the new end. `bounds` if several appends are in it."""
        place = (topic.id, part.partition)
        start, max_time = self._end(topic, place)
        end = start + part.rows
        latest = max_time if part.max_time is None else max(part.max_time, max_time or part.max_time)
        self._known.ends[place] = (end, latest)
        self._moved.add(place)
        self._chunks.append(
            (
                *(topic.id, part.partition, start, end, part.rows, number, last_number or number, part.schema),
                *(part.crc, part.size, at, max_time, part.file, part.data, bounds),
            )
        )
        return end

    def _end(self, topic: KnownTopic, place: tuple[int, int]) -> tuple[int, int | None]:
        ends = self._known.ends
        if place not in ends:
            row: Any = self._catalog.execute(
                'SELECT "end", max_time FROM ends WHERE topic = ? AND partition = ?', place
            ).fetchone()
            if row is None:
                raise TopicNotFound(topic=topic.spec.name)
            ends[place] = (row[0], row[1])
        return ends[place]

    def flush(self) -> None:
        """What it raises leaves the memory wrong: whoever rolls back has it forgotten."""
        if self._moved:
            self._catalog.executemany(
                'UPDATE ends SET "end" = ?, max_time = ? WHERE topic = ? AND partition = ?',
                [(*self._known.ends[place], *place) for place in self._moved],
            )
        insert(self._catalog, _CHUNK, self._chunks)
        for counted in self._counted:
            self._catalog.execute(_VERSION, (*counted, self._known.versions[counted]))
        insert(self._catalog, _APPEND, self._appends)
        self._moved.clear()
        self._counted.clear()
        self._chunks.clear()
        self._appends.clear()


def insert(catalog: apsw.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        marks = "(" + ", ".join("?" * len(some[0])) + ")"
        catalog.execute(statement + ", ".join([marks] * len(some)), [value for row in some for value in row])
