"""The rows of queues: which records are handed out, to which receipt, until when. All are parts of a transaction.

    cursors     the next offset of a partition that was never handed out
    deliveries  all before it that nobody has acknowledged; a released one has `until` 0 and no receipt

A record is in exactly one place: at or after the cursor, in a delivery, or done with. What came back is found by the
index `deliveries_by_time`, however many are out.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import apsw

from headwater.errors import LeaseLost, Missed, QueueNotFound
from headwater.log.queues import QueueSpec


@dataclass(frozen=True)
class Held:
    """A row of `deliveries`."""

    partition: int
    offset: int
    receipt: str
    until: int
    attempt: int


_HELD = 'SELECT partition, "offset", receipt, until, attempt FROM deliveries WHERE queue = ?'


def all_specs(catalog: apsw.Connection) -> list[QueueSpec]:
    found: list[Any] = catalog.execute(
        "SELECT q.name, t.name, q.lease / 1e6, q.attempts, q.dead FROM queues q JOIN topics t ON t.id = q.topic"
        " ORDER BY q.name"
    ).fetchall()
    return [QueueSpec(*row) for row in found]


def find_spec(catalog: apsw.Connection, queue: str) -> QueueSpec:
    known = {spec.name: spec for spec in all_specs(catalog)}
    if queue not in known:
        raise QueueNotFound(queue=queue, known=known)
    return known[queue]


def standing(catalog: apsw.Connection, spec: QueueSpec) -> dict[int, tuple[int, int, int]]:
    """Cursor, start and end of each partition."""
    rows: list[Any] = catalog.execute(
        'SELECT c.partition, c."offset", e.start, e."end" FROM cursors c JOIN queues q ON q.name = c.queue'
        " JOIN ends e ON e.topic = q.topic AND e.partition = c.partition WHERE c.queue = ? ORDER BY c.partition",
        (spec.name,),
    ).fetchall()
    return {row[0]: row[1:] for row in rows}


def select(catalog: apsw.Connection, queue: str, where: str, *given: int, limit: int = -1) -> list[Held]:
    query = f'{_HELD} AND {where} ORDER BY until, partition, "offset" LIMIT ?'
    rows: list[Any] = catalog.execute(query, (queue, *given, limit)).fetchall()
    return [Held(*row) for row in rows]


def anything(catalog: apsw.Connection, spec: QueueSpec, now: int) -> bool:
    if any(cursor < end for cursor, _, end in standing(catalog, spec).values()):
        return True
    return bool(select(catalog, spec.name, "until <= ? AND attempt < ?", now, spec.attempts, limit=1))


def claim(catalog: apsw.Connection, queue: str, count: int, now: int, turn: int) -> list[Held]:
    spec = find_spec(catalog, queue)
    places = standing(catalog, spec)
    until = now + int(spec.lease_s * 1_000_000)
    claimed = []
    for old in select(catalog, queue, "until <= ? AND attempt < ?", now, spec.attempts, limit=count):
        _present(spec, old.partition, old.offset, places[old.partition][1])
        claimed.append(_leased(old.partition, old.offset, until, old.attempt + 1))
    for partition in _from(turn, list(places)):  # partitions take turns to be first
        cursor, start, end = places[partition]
        last = min(end, cursor + count - len(claimed))
        if last > cursor:
            _present(spec, partition, cursor, start)
            claimed += [_leased(partition, offset, until, 1) for offset in range(cursor, last)]
            catalog.execute(
                'UPDATE cursors SET "offset" = ? WHERE queue = ? AND partition = ?', (last, queue, partition)
            )
    catalog.executemany(
        'INSERT OR REPLACE INTO deliveries(queue, partition, "offset", receipt, until, attempt)'
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(queue, each.partition, each.offset, each.receipt, each.until, each.attempt) for each in claimed],
    )
    return claimed


def _present(spec: QueueSpec, partition: int, offset: int, start: int) -> None:
    if offset < start:
        raise Missed(topic=spec.topic, partition=partition, asked=offset, first=start)


def _from(turn: int, partitions: list[int]) -> list[int]:
    first = turn % len(partitions)
    return partitions[first:] + partitions[:first]


def _leased(partition: int, offset: int, until: int, attempt: int) -> Held:
    return Held(partition, offset, f"{partition}-{offset}-{secrets.token_hex(8)}", until, attempt)


def place_of(queue: str, receipt: str) -> tuple[int, int]:
    """Where the record of a receipt is: so that a receipt alone is enough to settle it."""
    partition, _, rest = receipt.partition("-")
    offset = rest.partition("-")[0]
    if not (partition.isdecimal() and offset.isdecimal()):
        raise LeaseLost(queue=queue, receipt=receipt)
    return int(partition), int(offset)


def find_held(catalog: apsw.Connection, queue: str, place: tuple[int, int], receipt: str) -> Held:
    query = f'{_HELD} AND partition = ? AND "offset" = ? AND receipt = ?'
    row: Any = catalog.execute(query, (queue, *place, receipt)).fetchone()
    if row is None:
        raise LeaseLost(queue=queue, receipt=receipt)
    return Held(*row)


def extend(catalog: apsw.Connection, queue: str, held: Held, until: int) -> int:
    """Until when it is held now."""
    until = max(until, held.until)
    query = 'UPDATE deliveries SET until = ? WHERE queue = ? AND partition = ? AND "offset" = ?'
    catalog.execute(query, (until, queue, held.partition, held.offset))
    return until


def settle(catalog: apsw.Connection, queue: str, place: tuple[int, int], receipt: str) -> None:
    query = 'DELETE FROM deliveries WHERE queue = ? AND partition = ? AND "offset" = ? AND receipt = ?'
    catalog.execute(query, (queue, *place, receipt))
    if not catalog.changes():
        raise LeaseLost(queue=queue, receipt=receipt)


def give_back(catalog: apsw.Connection, queue: str, held: list[Held]) -> None:
    """As if they had not been taken: the attempt does not count."""
    catalog.executemany(
        "UPDATE deliveries SET until = 0, receipt = '', attempt = attempt - 1"
        ' WHERE queue = ? AND partition = ? AND "offset" = ? AND receipt = ?',
        [(queue, each.partition, each.offset, each.receipt) for each in held],
    )
