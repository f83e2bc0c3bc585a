"""Rows of the catalog as values: chunks and topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import apsw
import pyarrow as pa
from pyarrow import ipc

from headwater.errors import TopicNotFound
from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.fewrows import FewRows
from headwater.log.protocol import Extent
from headwater.log.spec import Settings, TopicSpec


@dataclass(frozen=True)
class KnownTopic:
    """A topic with its number in the catalog and all versions of its schema."""

    id: int
    spec: TopicSpec
    schemas: dict[int, pa.Schema]

    @cached_property
    def version(self) -> int:
        return max(self.schemas)

    @cached_property
    def few_rows(self) -> FewRows | None:
        return FewRows.of(self.spec.stored, self.spec.required)

    @cached_property
    def has_plain_key(self) -> bool:
        """Of text and whole numbers alone."""
        kinds = [self.spec.schema.field(name).type for name in self.spec.key]
        return all(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in kinds)

    @cached_property
    def _stored(self) -> dict[int, pa.Schema]:
        return {version: self.spec.with_schema(schema).stored for version, schema in self.schemas.items()}

    def stored(self, version: int) -> pa.Schema:
        return self._stored[version]


def load_topics(catalog: apsw.Connection, *, only: str | None = None) -> Iterator[KnownTopic]:
    columns = "id, name, key, time, kind, partitions, settings"
    where, given = ("WHERE name = ?", (only,)) if only is not None else ("", ())
    rows: list[Any] = catalog.execute(f"SELECT {columns} FROM topics {where} ORDER BY name", given).fetchall()
    for number, name, key, time, kind, partitions, settings in rows:
        schemas = {
            version: ipc.read_schema(pa.py_buffer(schema))
            for version, schema in catalog.execute("SELECT version, schema FROM schemas WHERE topic = ?", (number,))
        }
        stored = json.loads(settings)
        spec = TopicSpec(
            name=name,
            schema=schemas[max(schemas)],
            key=tuple(json.loads(key)),
            time=time,
            kind=kind,
            partitions=partitions,
            upsert=stored.pop("upsert"),
            versioned=stored.pop("versioned"),
            settings=Settings(**stored),
        )
        yield KnownTopic(number, spec, schemas)


@lru_cache(maxsize=1024)
def parse_settings(text: str) -> Settings:
    stored = json.loads(text)
    return Settings(**{name: value for name, value in stored.items() if name in Settings.__dataclass_fields__})


def settings_text(spec: TopicSpec) -> str:
    return json.dumps({**json.loads(spec.settings.to_json()), "upsert": spec.upsert, "versioned": spec.versioned})


@dataclass(frozen=True)
class Chunk:
    """A row of `chunks`. `data` is not loaded with it: see `chunk_data`."""

    id: int
    partition: int
    start: int
    end: int
    rows: int
    append: int
    last_append: int
    schema: int
    crc: int
    size: int
    appended_at: int
    time_before: int | None
    file: str | None
    has_bounds: int
    topic: int

    @property
    def identity(self) -> tuple[Any, ...]:
        """Of what is listed under its id: SQLite gives the id of a chunk that is gone to another one."""
        return self.id, self.topic, self.partition, self.start, self.end, self.append, self.crc

    @property
    def sparse(self) -> bool:
        return self.rows < self.end - self.start


_COLUMNS = (
    'id, partition, start, "end", rows, append, last_append, schema, crc, size, appended_at, time_before, file,'
    " bounds IS NOT NULL, topic"
)
_THIS = 'id = ? AND topic = ? AND partition = ? AND start = ? AND "end" = ? AND append = ? AND crc = ?'


def select_chunks(
    catalog: apsw.Connection,
    topic: int,
    where: str,
    given: tuple[Any, ...],
    *,
    order: str = 'partition, "end"',
    limit: int = -1,
) -> list[Chunk]:
    query = f"SELECT {_COLUMNS} FROM chunks WHERE topic = ? AND {where} ORDER BY {order} LIMIT ?"
    rows: list[Any] = catalog.execute(query, (topic, *given, limit)).fetchall()
    return [Chunk(*row) for row in rows]


Listed = tuple[Chunk, bytes | None, bytes | None]
"""A chunk with its data, if it is inlined, and its bounds, if it has any and they were asked for."""


def page_of(
    catalog: apsw.Connection,
    topic: KnownTopic,
    partition: int,
    start: int,
    end: int,
    *,
    most: int,
    most_bytes: int,
    bounds: bool,
) -> list[Listed]:
    """What is listed of offsets start <= o < end, up to the chunk that exceeds the bytes: no data beyond it is read."""
    cursor = catalog.execute(
        f"SELECT {_COLUMNS}, data, {'bounds' if bounds else 'NULL'} FROM chunks"
        ' WHERE topic = ? AND partition = ? AND "end" > ? AND start < ? ORDER BY partition, "end" LIMIT ?',
        (topic.id, partition, start, end, most),
    )
    page: list[Listed] = []
    size = 0
    for *columns, data, bound in cursor:
        chunk = Chunk(*columns)
        page.append((chunk, data, bound))
        size += chunk.size if chunk.file is None else 0
        if size > most_bytes:
            break
    cursor.close()
    return page


def standing_of(catalog: apsw.Connection, topic: KnownTopic, partition: int) -> tuple[int, int, int] | None:
    """Where the partition begins, its horizon, and the version of the topic's newest schema; None if it is gone."""
    row: Any = catalog.execute(
        "SELECT start, horizon, (SELECT max(version) FROM schemas WHERE topic = ?1) FROM ends"
        " WHERE topic = ?1 AND partition = ?2",
        (topic.id, partition),
    ).fetchone()
    return row  # type: ignore[no-any-return]


class Swapped(Exception):
    """A chunk is no longer listed: somebody else's upkeep was faster. Who wanted to swap it leaves it alone."""


def is_listed(catalog: apsw.Connection, chunk: Chunk) -> bool:
    """Whether it is so still, at its place."""
    query = f"SELECT 1 FROM chunks WHERE {_THIS} AND file IS ?"
    return catalog.execute(query, (*chunk.identity, chunk.file)).fetchone() is not None


def chunk_data(catalog: apsw.Connection, chunk: Chunk) -> bytes | None:
    row: Any = catalog.execute(f"SELECT data FROM chunks WHERE {_THIS}", chunk.identity).fetchone()
    return row[0] if row else None


def chunk_bounds(catalog: apsw.Connection, chunk: Chunk) -> Bounds:
    if not chunk.has_bounds:
        return Bounds.of_one(chunk.append, chunk.end, chunk.appended_at)
    row: Any = catalog.execute(f"SELECT bounds FROM chunks WHERE {_THIS}", chunk.identity).fetchone()
    if row is None:
        raise Swapped
    return Bounds.decode(row[0])


def extents_of(catalog: apsw.Connection, topic: KnownTopic) -> dict[int, Extent]:
    rows: list[Any] = catalog.execute(
        'SELECT partition, start, "end", horizon, dropped FROM ends WHERE topic = ?', (topic.id,)
    ).fetchall()
    if not rows:
        raise TopicNotFound(topic=topic.spec.name)
    return {row[0]: Extent(*row[1:]) for row in sorted(rows)}


def newest_append(catalog: apsw.Connection) -> int:
    return int(catalog.execute("SELECT coalesce(max(number), 0) FROM appends").get)
