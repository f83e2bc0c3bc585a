"""Bounded topics: what happens when an append would make them larger than they may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from headwater.log.embedded.rows import KnownTopic, extents_of
from headwater.log.embedded.transaction import Transaction
from headwater.log.embedded.trim import trim_to
from headwater.log.protocol import Part


class Refused(Exception):
    """Base of internal refusals: like one of our errors, it concerns its own append alone."""


class NoRoom(Refused):
    """Internal: a topic that blocks is full now. Nothing was changed; try again when its consumers have gone on."""

    def __init__(self, topic: str, most_rows: int) -> None:
        super().__init__(topic, most_rows)
        self.topic, self.most_rows = topic, most_rows


def make_room(
    transaction: Transaction, parts: Sequence[Part], topics: Mapping[str, KnownTopic], *, now: int
) -> tuple[Sequence[Part], int]:
    """The parts that are taken, after what must go has gone, and how many records are not taken."""
    bounded = {name: known for name, known in topics.items() if transaction.settings(known).most_rows is not None}
    if not bounded:
        return parts, 0
    with transaction.catalog as catalog:  # a savepoint: if one of them has no room, none has made any
        taken, dropped = _made(transaction, catalog, parts, bounded, now=now)
    return taken, dropped


def _made(
    transaction: Transaction,
    catalog: apsw.Connection,
    parts: Sequence[Part],
    bounded: Mapping[str, KnownTopic],
    *,
    now: int,
) -> tuple[Sequence[Part], int]:
    taken = list(parts)
    dropped = 0
    for name, known in bounded.items():
        settings = transaction.settings(known)
        assert settings.most_rows is not None
        own = [part for part in taken if part.topic == name]
        excess = _held(catalog, known) + sum(part.rows for part in own) - settings.most_rows
        if excess > 0 and settings.when_full == "block":
            excess -= _drop_consumed(catalog, known, now=now)
            if excess > 0:
                raise NoRoom(name, settings.most_rows)
        elif excess > 0 and settings.when_full == "drop_oldest":
            _drop_oldest(catalog, known, excess, now=now)
        elif excess > 0:
            refused = _over(own, excess)
            dropped += sum(part.rows for part in refused)
            for part in refused:
                taken.remove(part)
                _count_dropped(catalog, known, part.partition, part.rows)
    return taken, dropped


def _held(catalog: apsw.Connection, topic: KnownTopic) -> int:
    return sum(extent.end - extent.start for extent in extents_of(catalog, topic).values())


def _over(parts: list[Part], excess: int) -> list[Part]:
    """The last parts of the append, until what is left fits."""
    refused = []
    for part in reversed(parts):
        if excess <= 0:
            break
        refused.append(part)
        excess -= part.rows
    return refused


def _drop_oldest(catalog: apsw.Connection, topic: KnownTopic, excess: int, *, now: int) -> None:
    """In the order in which they were appended, whichever partition they are in."""
    starts = {partition: extent.start for partition, extent in extents_of(catalog, topic).items()}
    rows: list[Any] = catalog.execute(
        'SELECT partition, "end" FROM chunks WHERE topic = ? ORDER BY append, partition', (topic.id,)
    ).fetchall()
    for partition, end in rows:
        if excess <= 0:
            break
        gone = min(excess, end - starts[partition])
        starts[partition] += gone
        excess -= gone
        _count_dropped(catalog, topic, partition, gone)
    for partition, start in starts.items():
        trim_to(catalog, topic, partition, start, now=now)


def _drop_consumed(catalog: apsw.Connection, topic: KnownTopic, *, now: int) -> int:
    """What all groups and queues have behind them makes room in a topic that blocks; returns how much."""
    freed = 0
    for partition, extent in extents_of(catalog, topic).items():
        rows: list[Any] = catalog.execute(
            'SELECT min("offset") FROM committed WHERE topic = ? AND partition = ? UNION ALL '
            'SELECT min(coalesce((SELECT min(d."offset") FROM deliveries d WHERE d.queue = c.queue'
            ' AND d.partition = c.partition), c."offset"))'
            " FROM cursors c JOIN queues q ON q.name = c.queue WHERE q.topic = ? AND c.partition = ?",
            (topic.id, partition, topic.id, partition),
        ).fetchall()
        consumed = [row[0] for row in rows if row[0] is not None]
        if consumed and min(consumed) > extent.start:
            freed += min(consumed) - extent.start
            trim_to(catalog, topic, partition, min(consumed), now=now)
    return freed


def _count_dropped(catalog: apsw.Connection, topic: KnownTopic, partition: int, rows: int) -> None:
    catalog.execute(
        "UPDATE ends SET dropped = dropped + ? WHERE topic = ? AND partition = ?", (rows, topic.id, partition)
    )
