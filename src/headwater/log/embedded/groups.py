"""Groups in the catalog: tables `groups` (generation), `members` (session) and `committed` (next offset to read).

Members change only together with the generation, so what a generation assigns is a function of the rows of `members`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import apsw

from headwater.errors import (
    BadName,
    BadOffset,
    BadPartition,
    Compacted,
    GroupNotFound,
    NotAMember,
    Pinned,
    Rebalanced,
    TopicNotFound,
    UsageError,
)
from headwater.log.embedded.floors import floor, raise_floor
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.groups import SESSION_S, Assignment, Group, GroupMember, Lag, Start, assign, beginning
from headwater.log.protocol import Extent
from headwater.log.spec import NAME


class EmbeddedGroups:
    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    # --- membership ---

    def join(
        self, group: str, topic: str, member: str, *, session_s: float = SESSION_S, start: Start = "start"
    ) -> Assignment:
        for name, kind in ((group, "group"), (member, "member")):
            if not NAME.fullmatch(name):
                raise BadName(name=name, kind=kind)
        if start not in ("start", "end"):
            raise UsageError(what=f"a group cannot begin at {start!r}", do="Use 'start' or 'end'; then reset it")

        def work(catalog: apsw.Connection) -> Assignment:
            rows = _Rows.made(catalog, group, topic, start)
            now = self._log.clock()
            rows.expire(now)
            rows.renew(member, now + int(session_s * 1_000_000))
            rows.bump()
            return rows.assignment(member)

        return self._log.committer.run(work)

    def heartbeat(self, group: str, topic: str, member: str, *, session_s: float = SESSION_S) -> Assignment:
        def work(catalog: apsw.Connection) -> Assignment | None:
            rows = _Rows.found(catalog, group, topic)
            now = self._log.clock()
            if rows.expire(now):
                rows.bump()
            if member not in rows.members():
                return None  # not raised here: that would undo the removal of the others
            rows.renew(member, now + int(session_s * 1_000_000))
            return rows.assignment(member)

        assigned = self._log.committer.run(work)
        if assigned is None:
            raise NotAMember(group=group, topic=topic, member=member)
        return assigned

    def assignment(self, group: str, topic: str, member: str) -> Assignment:
        with self._log.catalog.read() as catalog:
            return _Rows.found(catalog, group, topic).assignment(member)

    def leave(self, group: str, topic: str, member: str) -> None:
        def work(catalog: apsw.Connection) -> None:
            rows = _Rows.found(catalog, group, topic)
            if rows.drop(member):
                rows.bump()

        self._log.committer.run(work)

    def members(self, group: str, topic: str) -> list[GroupMember]:
        with self._log.catalog.read() as catalog:
            rows = _Rows.found(catalog, group, topic)
            now, members = self._log.clock(), rows.members()
        given = assign(members, rows.partitions)
        return [
            GroupMember(name, given[name], datetime.fromtimestamp(until / 1_000_000, UTC), until > now)
            for name, until in members.items()
        ]

    # --- offsets ---

    def commit(self, group: str, topic: str, member: str, *, generation: int, offsets: Mapping[int, int]) -> None:
        def work(catalog: apsw.Connection) -> None:
            rows = _Rows.found(catalog, group, topic)
            if rows.generation != generation:
                raise Rebalanced(group=group, topic=topic, generation=generation, current=rows.generation)
            own = rows.assignment(member).partitions
            standing, extents = rows.committed(), rows.extents()
            for partition, offset in offsets.items():
                if partition not in own:
                    raise UsageError(
                        what=f"partition {partition} of topic {topic!r} is not assigned to {member!r}",
                        do=f"Commit only its own: {', '.join(map(str, own)) or 'none'}",
                    )
                rows.check(partition, offset, low=standing[partition], high=extents[partition].end)
            rows.move(offsets)

        self._log.committer.run(work)

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        with self._log.catalog.read() as catalog:
            return _Rows.found(catalog, group, topic).committed()

    def lag(self, group: str, topic: str) -> list[Lag]:
        with self._log.catalog.read() as catalog:
            rows = _Rows.found(catalog, group, topic)
            standing, extents, members = rows.committed(), rows.extents(), rows.members()
        reads = {p: name for name, given in assign(members, rows.partitions).items() for p in given}
        return [
            Lag(
                partition,
                committed=here,
                end=extents[partition].end,
                lag=extents[partition].end - here,
                missed=_missed(here, extents[partition]),
                member=reads.get(partition),
            )
            for partition, here in standing.items()
        ]

    def reset(self, group: str, topic: str, offsets: Mapping[int, int], *, dry_run: bool = False) -> Mapping[int, int]:
        def work(catalog: apsw.Connection) -> Mapping[int, int]:
            rows = _Rows.found(catalog, group, topic)
            extents = rows.extents()
            for partition, offset in offsets.items():
                if partition not in extents:
                    raise BadPartition(topic=topic, partition=partition, partitions=rows.partitions)
                extent = extents[partition]
                rows.check(partition, offset, low=beginning(extent), high=extent.end)
                if 0 < offset < extent.horizon:
                    raise Compacted(topic=topic, partition=partition, asked=offset, horizon=extent.horizon)
            before = rows.committed()
            if not dry_run:
                rows.move(offsets)
                rows.bump()
            return {partition: before[partition] for partition in offsets}

        return self._log.committer.run(work)

    # --- groups ---

    def groups(self) -> list[Group]:
        with self._log.catalog.read() as catalog:
            found: list[Any] = catalog.execute(
                "SELECT g.name, t.name, g.generation,"
                ' (SELECT count(*) FROM members m WHERE m."group" = g.name AND m.topic = g.topic AND m.alive_until > ?)'
                " FROM groups g JOIN topics t ON t.id = g.topic ORDER BY g.name, t.name",
                (self._log.clock(),),
            ).fetchall()
        return [Group(*row) for row in found]

    def remove(self, group: str, topic: str) -> None:
        def work(catalog: apsw.Connection) -> None:
            rows = _Rows.found(catalog, group, topic)
            rows.expire(self._log.clock())
            for member in rows.members():
                raise Pinned(topic=topic, by=member, act=f"removal of group {group!r}")
            raise_floor(catalog, "generation", rows.generation)
            catalog.execute("DELETE FROM groups WHERE name = ? AND topic = ?", rows.key)
            catalog.execute('DELETE FROM committed WHERE "group" = ? AND topic = ?', rows.key)

        self._log.committer.run(work)


@dataclass
class _Rows:
    """The rows of one group inside of a transaction."""

    catalog: apsw.Connection
    group: str
    topic: str
    number: int
    partitions: int
    generation: int

    @classmethod
    def found(cls, catalog: apsw.Connection, group: str, topic: str) -> _Rows:
        number, partitions = _topic(catalog, topic)
        query = "SELECT generation FROM groups WHERE name = ? AND topic = ?"
        generation: Any = catalog.execute(query, (group, number)).get
        if generation is None:
            known = [row[0] for row in catalog.execute("SELECT name FROM groups WHERE topic = ?", (number,))]
            raise GroupNotFound(group=group, topic=topic, known=known)
        return cls(catalog, group, topic, number, partitions, generation)

    @classmethod
    def made(cls, catalog: apsw.Connection, group: str, topic: str, start: Start) -> _Rows:
        number, _ = _topic(catalog, topic)
        query = "INSERT OR IGNORE INTO groups(name, topic, generation) VALUES (?, ?, ?)"
        catalog.execute(query, (group, number, floor(catalog, "generation")))
        new = catalog.changes() > 0
        rows = cls.found(catalog, group, topic)
        if new:
            extents = rows.extents().items()
            rows.move({p: extent.end if start == "end" else beginning(extent) for p, extent in extents})
        return rows

    @property
    def key(self) -> tuple[str, int]:
        return self.group, self.number

    def bump(self) -> None:
        self.generation += 1
        self.catalog.execute("UPDATE groups SET generation = generation + 1 WHERE name = ? AND topic = ?", self.key)

    def members(self) -> dict[str, int]:
        query = 'SELECT member, alive_until FROM members WHERE "group" = ? AND topic = ? ORDER BY member'
        found: list[Any] = self.catalog.execute(query, self.key).fetchall()
        return dict(found)

    def renew(self, member: str, until: int) -> None:
        self.catalog.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)", (*self.key, member, until))

    def expire(self, now: int) -> bool:
        query = 'DELETE FROM members WHERE "group" = ? AND topic = ? AND alive_until <= ?'
        self.catalog.execute(query, (*self.key, now))
        return self.catalog.changes() > 0

    def drop(self, member: str) -> bool:
        query = 'DELETE FROM members WHERE "group" = ? AND topic = ? AND member = ?'
        self.catalog.execute(query, (*self.key, member))
        return self.catalog.changes() > 0

    def assignment(self, member: str) -> Assignment:
        members = self.members()
        if member not in members:
            raise NotAMember(group=self.group, topic=self.topic, member=member)
        return Assignment(self.generation, assign(members, self.partitions)[member])

    def extents(self) -> dict[int, Extent]:
        query = 'SELECT partition, start, "end", horizon, dropped FROM ends WHERE topic = ? ORDER BY partition'
        found: list[Any] = self.catalog.execute(query, (self.number,)).fetchall()
        return {row[0]: Extent(*row[1:]) for row in found}

    def committed(self) -> dict[int, int]:
        query = 'SELECT partition, "offset" FROM committed WHERE "group" = ? AND topic = ? ORDER BY partition'
        found: list[Any] = self.catalog.execute(query, self.key).fetchall()
        return dict(found)

    def check(self, partition: int, offset: int, *, low: int, high: int) -> None:
        if not low <= offset <= high:
            raise BadOffset(group=self.group, topic=self.topic, partition=partition, asked=offset, low=low, high=high)

    def move(self, offsets: Mapping[int, int]) -> None:
        rows = [(*self.key, partition, offset) for partition, offset in offsets.items()]
        self.catalog.executemany("INSERT OR REPLACE INTO committed VALUES (?, ?, ?, ?)", rows)


def _missed(here: int, extent: Extent) -> int:
    return 0 if here == beginning(extent) else max(0, extent.start - here)


def _topic(catalog: apsw.Connection, name: str) -> tuple[int, int]:
    row: Any = catalog.execute("SELECT id, partitions FROM topics WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = [each[0] for each in catalog.execute("SELECT name FROM topics ORDER BY name")]
        raise TopicNotFound(topic=name, known=known)
    return row[0], row[1]
