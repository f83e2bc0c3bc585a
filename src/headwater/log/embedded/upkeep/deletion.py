"""Deletion for good: a topic goes, and its bytes with it, at once.

`Log.delete` leaves files for a grace period, for those who are reading. Here nobody is to read them any more.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from headwater.errors import TopicNotFound
from headwater.log.embedded.upkeep.garbage import orphans, remove_files

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


def delete_for_good(log: EmbeddedLog, topics: Collection[str]) -> list[str]:
    """The names of those that were there. `Pinned` while somebody depends on one: then it and those after it stay.

    Files of topics that are gone already, staged ones of runs that were killed among them, go as well; nobody may be
    appending to them any more.
    """
    deleted = []
    for topic in topics:
        with suppress(TopicNotFound):
            log.delete(topic)
            deleted.append(topic)
    there = {spec.name for spec in log.topics()}
    folders = [f"chunks/{topic}/" for topic in topics if topic not in there]
    with log.catalog.read() as catalog:
        names = [str(row[0]) for row in catalog.execute("SELECT file FROM garbage")]
    remove_files(log, [name for name in [*names, *orphans(log)] if any(folder in name for folder in folders)])
    log.forget_mapped()
    log.catalog.truncate_wal()
    return deleted
