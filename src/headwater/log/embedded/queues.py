"""Queues over the embedded log: leases are rows of the catalog (see `deliveries.py`), each act is one transaction.

What goes to the dead-letter topic is staged first; the append and the end of its delivery are then one transaction.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import apsw
import pyarrow as pa

from headwater.errors import (
    BadName,
    Full,
    LeaseLost,
    QueueMismatch,
    TopicNotFound,
    UsageError,
)
from headwater.log.embedded import topics
from headwater.log.embedded.append import Append, append_in
from headwater.log.embedded.bound import NoRoom
from headwater.log.embedded.deliveries import (
    Held,
    all_specs,
    anything,
    claim,
    extend,
    find_held,
    find_spec,
    give_back,
    place_of,
    select,
    settle,
    standing,
)
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.readahead import ReadAhead
from headwater.log.evolution import conform
from headwater.log.protocol import Part
from headwater.log.queues import ATTEMPTS, LEASE_S, Delivery, QueueLag, QueueSpec
from headwater.log.spec import NAME, Settings, TopicSpec

BURIED_AT_ONCE = 256


class EmbeddedQueues:
    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._records = ReadAhead(log)
        self._turn = itertools.count()

    # --- queues ---

    def create(
        self,
        queue: str,
        topic: str,
        *,
        lease_s: float = LEASE_S,
        attempts: int = ATTEMPTS,
        dead: str | None = None,
        start: Literal["start", "end"] = "start",
    ) -> QueueSpec:
        wanted = QueueSpec(queue, topic, lease_s, attempts, dead or f"{queue}.dead")
        _check(wanted, start)

        def work(catalog: apsw.Connection) -> None:
            known = topics.find(catalog, topic)
            if known.spec.kind == "table":
                raise UsageError(
                    what=f"topic {topic!r} is a table, its changes cannot be shared out one by one",
                    do="Make the queue on a stream, or read the table with a group",
                )
            for other in all_specs(catalog):
                if other.name == queue:
                    _same(other, wanted)
                    return
                if other.dead == wanted.dead:
                    raise UsageError(
                        what=f"{wanted.dead!r} is the dead-letter topic of queue {other.name!r}", do="Name another"
                    )
            topics.create_in(catalog, _dead_spec(known.spec, wanted.dead))
            row = (queue, known.id, int(lease_s * 1_000_000), attempts, wanted.dead)
            catalog.execute("INSERT INTO queues(name, topic, lease, attempts, dead) VALUES (?, ?, ?, ?, ?)", row)
            first = '"end"' if start == "end" else "start"
            query = f"INSERT INTO cursors SELECT ?, partition, {first} FROM ends WHERE topic = ?"
            catalog.execute(query, (queue, known.id))

        self._log.committer.run(work)
        return wanted

    def queues(self) -> list[QueueSpec]:
        with self._log.catalog.read() as catalog:
            return all_specs(catalog)

    def remove(self, queue: str) -> None:
        def work(catalog: apsw.Connection) -> None:
            find_spec(catalog, queue)
            catalog.execute("DELETE FROM deliveries WHERE queue = ?", (queue,))
            catalog.execute("DELETE FROM cursors WHERE queue = ?", (queue,))
            catalog.execute("DELETE FROM queues WHERE name = ?", (queue,))

        self._log.committer.run(work)

    # --- handing out ---

    def take(self, queue: str, count: int) -> list[Delivery]:
        """Leases first, records after: whoever is slow to read holds up nobody."""
        if count < 1:
            raise UsageError(what=f"cannot take {count} records", do="Take one or more")
        with self._log.catalog.read() as catalog:
            spec = find_spec(catalog, queue)
            now = self._log.clock()
            spent = select(catalog, queue, "until <= ? AND attempt >= ?", now, spec.attempts, limit=BURIED_AT_ONCE)
            any_there = anything(catalog, spec, now)
        if spent:
            with suppress(LeaseLost):  # its holder, or another taker, was faster; what is left is for the next take
                self._bury(spec, spent)
        if not any_there:
            return []
        turn = next(self._turn)
        held = self._log.committer.run(lambda catalog: claim(catalog, queue, count, self._log.clock(), turn))
        try:
            return self._delivered(spec, held)
        except BaseException:
            self._log.committer.run(lambda catalog: give_back(catalog, queue, held))
            raise

    def _delivered(self, spec: QueueSpec, held: list[Held]) -> list[Delivery]:
        taken = []
        for each in held:
            record = self._records.record(spec.topic, each.partition, each.offset)
            if record is None:  # forgotten: there is nothing to work on
                self.acknowledge(spec.name, each.receipt)
                continue
            until = _moment(each.until)
            taken.append(Delivery(spec.topic, each.partition, each.offset, record, each.attempt, each.receipt, until))
        return taken

    # --- settling ---

    def acknowledge(self, queue: str, receipt: str) -> None:
        def work(catalog: apsw.Connection) -> None:
            find_spec(catalog, queue)
            settle(catalog, queue, place_of(queue, receipt), receipt)

        self._log.committer.run(work)

    def extend(self, queue: str, receipt: str, *, lease_s: float | None = None) -> datetime:
        if lease_s is not None and lease_s <= 0:
            raise UsageError(what=f"cannot extend a lease by {lease_s:g} s", do="Give a time above 0 s, or release it")
        place = place_of(queue, receipt)

        def work(catalog: apsw.Connection) -> int:
            spec = find_spec(catalog, queue)
            wanted = self._log.clock() + int((lease_s or spec.lease_s) * 1_000_000)
            return extend(catalog, queue, find_held(catalog, queue, place, receipt), wanted)

        return _moment(self._log.committer.run(work))

    def release(self, queue: str, receipt: str) -> None:
        place = place_of(queue, receipt)

        def work(catalog: apsw.Connection) -> Held | None:
            spec = find_spec(catalog, queue)
            held = find_held(catalog, queue, place, receipt)
            if held.attempt >= spec.attempts:
                return held
            catalog.execute(
                "UPDATE deliveries SET until = 0, receipt = '' WHERE queue = ? AND partition = ? AND \"offset\" = ?",
                (queue, *place),
            )
            return None

        last = self._log.committer.run(work)
        if last is not None:
            self.reject(queue, receipt)

    def reject(self, queue: str, receipt: str) -> None:
        with self._log.catalog.read() as catalog:
            spec = find_spec(catalog, queue)
            held = find_held(catalog, queue, place_of(queue, receipt), receipt)
        self._bury(spec, [held])

    def _bury(self, spec: QueueSpec, held: list[Held]) -> None:
        """All of them to the dead-letter topic, or `LeaseLost` and none, if one is no longer as it was seen."""
        parts = self._stage_dead(spec, held)
        wanted = Append(parts, {spec.dead: self._log.known(spec.dead)})

        def work(catalog: apsw.Connection) -> None:
            for each in held:
                settle(catalog, spec.name, (each.partition, each.offset), each.receipt)
            if parts and append_in(catalog, wanted, now=self._log.clock()).dropped:
                raise NoRoom(spec.dead, sum(part.rows for part in parts))

        try:
            self._log.committer.run(work)
        except NoRoom as full:
            raise Full(topic=spec.dead, most_rows=full.most_rows, waited_s=0) from None

    def _stage_dead(self, spec: QueueSpec, held: list[Held]) -> list[Part]:
        source = self._log.topic(spec.topic)
        try:
            dead = self._log.topic(spec.dead)
        except TopicNotFound:  # somebody removed it
            dead = self._log.create(_dead_spec(source, spec.dead))
        if not set(source.schema).issubset(dead.schema):
            own = [field for field in dead.schema if field.name not in source.schema.names]
            dead = self._log.alter(spec.dead, schema=pa.schema([*source.schema, *own]))
        batches: dict[int, list[pa.RecordBatch]] = {}
        for each in sorted(held, key=lambda row: (row.partition, row.offset)):
            for batch in self._log.scan(spec.topic, each.partition, each.offset, each.offset + 1):
                batches.setdefault(each.partition, []).append(conform(batch, dead.stored))
        return [
            self._log.stage(spec.dead, partition, batch)
            for partition, found in batches.items()
            for batch in pa.Table.from_batches(found, dead.stored).combine_chunks().to_batches()
        ]

    # --- standing ---

    def lag(self, queue: str) -> list[QueueLag]:
        now = self._log.clock()
        with self._log.catalog.read() as catalog:
            spec = find_spec(catalog, queue)
            places = standing(catalog, spec)
            held = select(catalog, queue, "TRUE")
        rows = []
        for partition, (cursor, start, end) in places.items():
            own = [each for each in held if each.partition == partition]
            returned = sum(each.until <= now for each in own)
            missed = max(0, start - cursor) + sum(each.offset < start for each in own)
            waiting = end - max(cursor, start)
            rows.append(QueueLag(partition, cursor, end, waiting, len(own) - returned, returned, missed))
        return rows

    def skip(self, queue: str) -> dict[int, tuple[int, int]]:
        def work(catalog: apsw.Connection) -> dict[int, tuple[int, int]]:
            spec = find_spec(catalog, queue)
            given_up = {}
            for partition, (cursor, start, _) in standing(catalog, spec).items():
                where = 'WHERE queue = ? AND partition = ? AND "offset" < ?'
                lowest: Any = catalog.execute(
                    f'SELECT min("offset") FROM deliveries {where}', (queue, partition, start)
                ).get
                first = cursor if lowest is None else min(lowest, cursor)
                if first < start:
                    given_up[partition] = (first, start)
                    catalog.execute(f"DELETE FROM deliveries {where}", (queue, partition, start))
                    catalog.execute(f'UPDATE cursors SET "offset" = {start} {where}', (queue, partition, start))
            return given_up

        return self._log.committer.run(work)


def _moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


def _check(spec: QueueSpec, start: str) -> None:
    if not NAME.fullmatch(spec.name):
        raise BadName(name=spec.name, kind="queue")
    if spec.lease_s <= 0 or spec.attempts < 1 or start not in ("start", "end"):
        raise UsageError(
            what=f"queue {spec.name!r} with lease_s={spec.lease_s:g}, attempts={spec.attempts}, start={start!r}",
            do="Give a lease above 0 s, 1 attempt or more, and 'start' or 'end'",
        )
    if spec.dead == spec.topic:
        raise UsageError(what=f"queue {spec.name!r} would be its own dead-letter topic", do="Name another")


def _same(found: QueueSpec, wanted: QueueSpec) -> None:
    for part in ("topic", "lease_s", "attempts", "dead"):
        has, declared = getattr(found, part), getattr(wanted, part)
        if has != declared:
            raise QueueMismatch(queue=found.name, difference=f"{part}: it has {has!r}, declared is {declared!r}")


def _dead_spec(source: TopicSpec, name: str) -> TopicSpec:
    return replace(source, name=name, versioned=False, settings=Settings())
