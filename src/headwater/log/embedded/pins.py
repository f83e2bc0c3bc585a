"""Pins: by whom, and from where on, upkeep has to leave a partition as it is."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.log.embedded.rows import KnownTopic
from headwater.log.embedded.transaction import insert
from headwater.log.position import Position

Row = tuple[str, int, int, int]


def pin_rows(name: str, position: Position, topics: Iterable[KnownTopic]) -> list[Row]:
    ends = position.as_dict()
    return [
        (name, known.id, partition, ends.get(known.spec.name, {}).get(partition, 0))
        for known in topics
        for partition in range(known.spec.partitions)
    ]


def pin_in(catalog: apsw.Connection, name: str, rows: list[Row]) -> None:
    catalog.execute("DELETE FROM pins WHERE name = ?", (name,))
    insert(catalog, 'INSERT INTO pins(name, topic, partition, "offset") VALUES ', rows)
