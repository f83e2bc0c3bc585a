"""How a `file:` log is doing: what it holds, what waits to be removed, who holds upkeep back. Records are not read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headwater.clock import Clock, system_clock
from headwater.errors import Corrupt
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.checking import damage
from headwater.log.embedded.verify import files_in, listed_files


@dataclass(frozen=True)
class TopicHealth:
    topic: str
    records: int
    size: int
    chunks: int
    inlined: int


@dataclass(frozen=True)
class Holder:
    """Somebody whose position upkeep may not pass, and how many records are after it."""

    kind: str
    name: str
    topic: str
    behind: int
    alive: bool
    """False for a group without a living member. A pin has no life of its own: it counts as alive."""


@dataclass(frozen=True)
class Health:
    format: int
    topics: tuple[TopicHealth, ...]
    holders: tuple[Holder, ...]
    wal_bytes: int
    garbage_files: int
    garbage_bytes: int
    """Of those in the log's own folder."""
    orphan_files: int
    orphan_bytes: int


def health(root: Path, *, clock: Clock = system_clock) -> Health:
    """Raises what opening the log raises; nothing is changed."""
    files = files_in(root)
    catalog = Catalog(root / "catalog.db", as_is=True)
    try:
        with catalog.read() as read:
            topics = tuple(_topic(*row) for row in read.execute(_TOPICS))
            holders = tuple(_holder(row) for row in read.execute(_HOLDERS, {"now": clock()}))
            garbage = {str(row[0]) for row in read.execute("SELECT file FROM garbage")}
            listed = listed_files(read)
            found = int(read.pragma("user_version"))
    except apsw.Error as error:
        raise Corrupt(what=damage(error), file=str(catalog.path)) from error
    finally:
        wal = (root / "catalog.db-wal").stat().st_size if (root / "catalog.db-wal").exists() else 0
        catalog.close()
    orphans = files.keys() - listed - garbage
    return Health(
        found,
        topics,
        holders,
        wal,
        garbage_files=len(garbage),
        garbage_bytes=sum(files.get(name, 0) for name in garbage),
        orphan_files=len(orphans),
        orphan_bytes=sum(files[name] for name in orphans),
    )


def _topic(*row: Any) -> TopicHealth:
    return TopicHealth(*row)


def _holder(row: apsw.SQLiteValues) -> Holder:
    kind, name, topic, behind, alive = row
    return Holder(str(kind), str(name), str(topic), int(str(behind)), bool(alive))


_TOPICS = """
SELECT t.name, coalesce(sum(c.rows), 0), coalesce(sum(c.size), 0), count(c.id), count(c.data)
FROM topics t LEFT JOIN chunks c ON c.topic = t.id GROUP BY t.id ORDER BY t.name
"""
_HOLDERS = """
SELECT 'pin', p.name, t.name, sum(e."end" - p."offset"), 1
FROM pins p JOIN topics t ON t.id = p.topic JOIN ends e ON e.topic = p.topic AND e.partition = p.partition
GROUP BY p.name, t.id
UNION ALL
SELECT 'group', c."group", t.name, sum(e."end" - c."offset"),
  EXISTS (SELECT 1 FROM members m WHERE m."group" = c."group" AND m.topic = c.topic AND m.alive_until > :now)
FROM committed c JOIN topics t ON t.id = c.topic JOIN ends e ON e.topic = c.topic AND e.partition = c.partition
GROUP BY c."group", t.id
UNION ALL
SELECT 'queue', q.name, t.name, sum(e."end" - c."offset"), 1
FROM cursors c JOIN queues q ON q.name = c.queue JOIN topics t ON t.id = q.topic
  JOIN ends e ON e.topic = q.topic AND e.partition = c.partition
GROUP BY q.name, t.id
"""
