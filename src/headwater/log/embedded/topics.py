"""Making, changing and removing topics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import apsw
import pyarrow as pa

from headwater.errors import Pinned, TopicMismatch, TopicNotFound
from headwater.log.embedded.floors import floor, raise_floor
from headwater.log.embedded.rows import KnownTopic, load_topics, parse_settings, settings_text
from headwater.log.evolution import evolved
from headwater.log.spec import INTERNAL, Settings, TopicSpec


def find(catalog: apsw.Connection, name: str) -> KnownTopic:
    """The topic as this transaction sees it."""
    found = next(load_topics(catalog, only=name), None)
    if found is None:
        known = [str(other) for (other,) in catalog.execute("SELECT name FROM topics ORDER BY name")]
        raise TopicNotFound(topic=name, known=[other for other in known if not other.startswith(INTERNAL)])
    return found


def is_current(catalog: apsw.Connection, known: KnownTopic) -> bool:
    """Whether the topic is that still, by one statement: an id is never given twice, all but schema and settings is
    fixed, and schemas are only added."""
    row: Any = catalog.execute(
        "SELECT settings, (SELECT max(version) FROM schemas WHERE topic = id) FROM topics WHERE id = ?", (known.id,)
    ).fetchall()
    return bool(row) and (known.spec.settings, known.version) == (parse_settings(row[0][0]), row[0][1])


def create_in(catalog: apsw.Connection, spec: TopicSpec) -> TopicSpec:
    """A declaration of what is there already may bring new columns or wider types; it cannot take any away."""
    found = next(load_topics(catalog, only=spec.name), None)
    if found is not None:
        difference = found.spec.fixed_difference(spec)
        if difference is not None:
            raise TopicMismatch(topic=spec.name, difference=difference)
        if found.spec.schema != spec.schema:
            return alter_in(catalog, spec.name, schema=spec.schema, settings=None)
        return found.spec
    number = 1 + max(floor(catalog, "topic"), int(catalog.execute("SELECT coalesce(max(id), 0) FROM topics").get))
    catalog.execute(
        "INSERT INTO topics(id, name, key, time, kind, partitions, settings) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, spec.name, json.dumps(spec.key), spec.time, spec.kind, spec.partitions, settings_text(spec)),
    )
    _add_schema(catalog, number, 1, spec.schema)
    catalog.executemany(
        'INSERT INTO ends(topic, partition, start, "end", horizon, dropped) VALUES (?, ?, 0, 0, 0, 0)',
        [(number, partition) for partition in range(spec.partitions)],
    )
    return spec


def alter_in(catalog: apsw.Connection, name: str, *, schema: pa.Schema | None, settings: Settings | None) -> TopicSpec:
    known = find(catalog, name)
    if schema is not None:
        merged = evolved(name, known.spec.schema, schema)
        if merged != known.spec.schema:
            _add_schema(catalog, known.id, known.version + 1, merged)
    if settings is not None:
        changed = replace(known.spec, settings=settings)
        catalog.execute("UPDATE topics SET settings = ? WHERE id = ?", (settings_text(changed), known.id))
    return find(catalog, name).spec


def delete_in(catalog: apsw.Connection, name: str, *, now: int) -> None:
    """Its files become garbage; positions, pins and versions of it go with it. Refused while it is pinned."""
    known = find(catalog, name)
    holders = [
        *catalog.execute("SELECT name FROM pins WHERE topic = ?", (known.id,)),
        *catalog.execute("SELECT name FROM queues WHERE topic = ? OR dead = ?", (known.id, name)),
        *catalog.execute('SELECT "group" FROM members WHERE topic = ? AND alive_until > ?', (known.id, now)),
    ]
    for (holder,) in holders:
        raise Pinned(topic=name, by=str(holder), act="deletion")
    catalog.execute(
        "INSERT OR IGNORE INTO garbage SELECT file, ? FROM chunks WHERE topic = ? AND file IS NOT NULL", (now, known.id)
    )
    last: Any = catalog.execute("SELECT max(generation) FROM groups WHERE topic = ?", (known.id,)).get
    raise_floor(catalog, "generation", last or 0)
    raise_floor(catalog, "topic", known.id)
    for table in ("chunks", "ends", "schemas", "versions", "groups", "members", "committed"):
        catalog.execute(f"DELETE FROM {table} WHERE topic = ?", (known.id,))
    catalog.execute("DELETE FROM topics WHERE id = ?", (known.id,))


def _add_schema(catalog: apsw.Connection, topic: int, version: int, schema: pa.Schema) -> None:
    catalog.execute("INSERT INTO schemas VALUES (?, ?, ?)", (topic, version, schema.serialize().to_pybytes()))
