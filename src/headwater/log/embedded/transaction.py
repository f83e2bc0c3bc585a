"""What one transaction of the catalog is going to list, gathered so that many appends cost few statements.

Each statement lets other threads run and then waits for its turn again; a group of appends is therefore checked one by
one but listed together, by one statement a table, right before the commit or before anybody else reads those tables.
"""

from __future__ import annotations

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


class Transaction:
    def __init__(self, catalog: apsw.Connection) -> None:
        self._catalog = catalog
        self._settings: dict[int, Settings] = {}
        self._last: tuple[int, int] | None = None
        self._ends: dict[tuple[int, int], tuple[int, int | None]] = {}
        self._moved: set[tuple[int, int]] = set()
        self._chunks: list[tuple[Any, ...]] = []
        self._appends: list[tuple[Any, ...]] = []

    @property
    def catalog(self) -> apsw.Connection:
        """The connection, with all that was gathered so far written to it."""
        self.flush()
        return self._catalog

    def settings(self, topic: KnownTopic) -> Settings:
        """As they are now: another process may have altered them."""
        if topic.id not in self._settings:
            row: Any = self._catalog.execute("SELECT settings FROM topics WHERE id = ?", (topic.id,)).fetchone()
            if row is None:
                raise TopicNotFound(topic=topic.spec.name)
            self._settings[topic.id] = parse_settings(row[0])
        return self._settings[topic.id]

    def next_append(self, now: int) -> tuple[int, int]:
        return self.next_appends(1, now)

    def next_appends(self, count: int, now: int) -> tuple[int, int]:
        """The number of the first of `count` appends to come, and their time, which never goes back."""
        if self._last is None:
            row: Any = self._catalog.execute(
                "SELECT number, appended_at FROM appends ORDER BY number DESC LIMIT 1"
            ).fetchone()
            self._last = (row[0], row[1]) if row else (0, 0)
        first, at = self._last[0] + 1, max(now, self._last[1])
        self._last = (self._last[0] + count, at)
        return first, at

    def add_append(self, row: tuple[Any, ...]) -> None:
        self._appends.append(row)

    def end_of(self, topic: KnownTopic, partition: int) -> int:
        return self._end(topic, (topic.id, partition))[0]

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
        self._ends[place] = (end, latest)
        self._moved.add(place)
        self._chunks.append(
            (
                *(topic.id, part.partition, start, end, part.rows, number, last_number or number, part.schema),
                *(part.crc, part.size, at, max_time, part.file, part.data, bounds),
            )
        )
        return end

    def _end(self, topic: KnownTopic, place: tuple[int, int]) -> tuple[int, int | None]:
        if place not in self._ends:
            row: Any = self._catalog.execute(
                'SELECT "end", max_time FROM ends WHERE topic = ? AND partition = ?', place
            ).fetchone()
            if row is None:
                raise TopicNotFound(topic=topic.spec.name)
            self._ends[place] = (row[0], row[1])
        return self._ends[place]

    def flush(self) -> None:
        for place in self._moved:
            self._catalog.execute(
                'UPDATE ends SET "end" = ?, max_time = ? WHERE topic = ? AND partition = ?',
                (*self._ends[place], *place),
            )
        _insert(self._catalog, _CHUNK, self._chunks)
        _insert(self._catalog, _APPEND, self._appends)
        self._moved.clear()
        self._ends.clear()
        self._chunks.clear()
        self._appends.clear()
        self._last = None
        self._settings.clear()


def _insert(catalog: apsw.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        marks = "(" + ", ".join("?" * len(some[0])) + ")"
        catalog.execute(statement + ", ".join([marks] * len(some)), [value for row in some for value in row])
