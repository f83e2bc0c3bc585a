"""The newest record of each key: upserts and tombstones become weighted rows, a stream becomes a table.

State: `rows`, the newest record of each key, and with `retain` the queue `expiry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from headwater.errors import BadSchema
from headwater.log.keyhash import Hashes, distinct, key_hash
from headwater.process.keyed.arrangement import GONE, HASH, Arrangement, Shape
from headwater.process.keyed.bykey import ByKey, Mask, by_key, matched, taken
from headwater.process.keyed.combining import ints
from headwater.process.keyed.current import changes as changes_shown
from headwater.process.keyed.current import where, with_column, write
from headwater.process.keyed.expiry import NEVER, Expiry, after
from headwater.process.keyed.fixed import Ints
from headwater.process.keyed.operator import Answer, FoundBy, State
from headwater.process.keyed.records import POSITION, positions, user_columns
from headwater.process.keyed.weighing import weighed
from headwater.records import DELETED, OFFSET, PARTITION

NEWEST = "_newest"


@dataclass(frozen=True)
class Latest:
    """`input` has the columns that arrive: the topic's, `_deleted` if it is an upsert topic, `_partition`, `_offset`.

    Newest is the last in the log or, with by="time", the one with the greatest event time (of several the last in the
    log). The log orders the records of a partition: by="log" wants a key's records in one partition, where they are if
    the topic is partitioned by this key.

    With `retain` (µs), a key whose newest event time lies further than that behind the watermark leaves.
    """

    input: pa.Schema
    key: tuple[str, ...]
    time: str | None = None
    by: Literal["log", "time"] = "log"
    retain: int | None = None

    revision = 1

    @property
    def found_by(self) -> FoundBy | None:
        return (self.key,) if self.retain is None else None

    def __post_init__(self) -> None:
        missing = [name for name in (*self.key, PARTITION, OFFSET) if name not in self.input.names]
        if missing:
            raise BadSchema(what=f"latest: no column {missing[0]!r} arrives", do=f"Columns: {self.input.names}")
        if (self.by == "time" or self.retain is not None) and self.time not in self.input.names:
            raise BadSchema(what="latest: by='time' and retain need the topic's event time", do="Say time='...'")
        if self.by == "time" and DELETED in self.input.names:
            raise BadSchema(what="latest: an upsert topic has its own order, that of the log", do="Say by='log'")

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        rows = state.arrangement("rows", self._shape)
        expiry = Expiry(state) if self.retain is not None else None
        limit = NEVER if watermark is None or self.retain is None else max(NEVER, watermark - self.retain)
        gone, come = self._take(rows, expiry, changes.get(0, self.input.empty_table()), limit)
        left = self._expire(rows, expiry, watermark, limit) if expiry and watermark is not None else gone.slice(0, 0)
        return Answer(weighed(self._columns, [(gone, -1), (left, -1), (come, 1)]))

    def _take(
        self, rows: Arrangement, expiry: Expiry | None, changes: pa.Table, limit: int
    ) -> tuple[pa.Table, pa.Table]:
        """Rows that are no longer the newest of their keys, and those that are."""
        new, anew = self._newest(changes)
        hashes = new[HASH].to_numpy()
        old = rows.newest(distinct(hashes))
        places, known = matched(new, hashes, old, old[HASH].to_numpy(), self.key)
        before = taken(old, places) if known.any() else new  # only looked at where a row was known
        was_there = known & ~before[GONE].to_numpy()
        wins = ~known | _newer([ints(new, name) for name in self._order], [ints(before, name) for name in self._order])
        newest = np.zeros(0, np.int64)
        is_there = ~new[GONE].to_numpy()
        if expiry is not None:
            goes_on = was_there & ~anew
            newest = np.where(goes_on, np.maximum(ints(new, NEWEST), ints(before, NEWEST)), ints(new, NEWEST))
            is_there &= ~_expired(newest, limit)
            new = with_column(with_column(new, NEWEST, newest), GONE, ~is_there)
        write(rows, new, wins & (is_there | was_there))
        if expiry is not None:
            begins = ~goes_on | (ints(before, NEWEST) == NEVER)
            _enter(expiry, hashes, newest, wins & is_there & begins, self.retain)
        return changes_shown(self._columns, before, wins & was_there, new, wins & is_there)

    def _newest(self, changes: pa.Table) -> tuple[pa.Table, Mask]:
        """Of each key the newest of the changes, as it is stored, sorted by hash; and whether it was deleted before."""
        changes = changes.combine_chunks()
        hashes = key_hash([changes.column(name) for name in self.key])
        position = positions(changes)
        within = [ints(changes, self.time), position] if self.by == "time" and self.time else [position]
        found = by_key(changes, self.key, hashes, within)
        last = found.last
        deleted = changes[DELETED].to_numpy() if DELETED in self.input.names else np.zeros(len(hashes), np.bool_)
        newest = changes.select(self._columns.names).take(last)
        newest = newest.add_column(0, HASH, pa.array(hashes[last])).append_column(POSITION, pa.array(position[last]))
        anew = np.zeros(len(last), np.bool_)
        if self.retain is not None and self.time is not None:
            times, anew = _greatest(ints(changes, self.time), deleted, found)
            newest = newest.append_column(NEWEST, pa.array(times))
        return newest.append_column(GONE, pa.array(deleted[last])), anew

    def _expire(self, rows: Arrangement, expiry: Expiry, watermark: int, limit: int) -> pa.Table:
        """The rows of the keys that leave, without having been touched."""
        due = rows.newest(expiry.take(watermark))
        newest, there = ints(due, NEWEST), ~due[GONE].to_numpy()
        leaves = there & _expired(newest, limit)
        _enter(expiry, due[HASH].to_numpy(), newest, there & ~leaves & (newest != NEVER), self.retain)
        write(rows, with_column(due, GONE, np.ones(due.num_rows, np.bool_)), leaves)
        return where(due, leaves)

    @property
    def _columns(self) -> pa.Schema:
        return user_columns(self.input)

    @property
    def _order(self) -> tuple[str, ...]:
        return (self.time, POSITION) if self.by == "time" and self.time else (POSITION,)

    @property
    def _shape(self) -> Shape:
        own = [(POSITION, pa.int64()), *([(NEWEST, pa.int64())] if self.retain is not None else []), (GONE, pa.bool_())]
        schema = pa.schema([*self._columns, *(pa.field(name, kind) for name, kind in own)])
        return Shape(schema, self.key, newest=self._order)


def _greatest(times: Ints, deleted: Mask, found: ByKey) -> tuple[Ints, Mask]:
    """By key, the greatest event time since it was last deleted, and whether it was deleted at all."""
    if not len(times):
        return times, deleted
    times, deleted = times[found.order], deleted[found.order]
    places = np.arange(len(times))
    last = np.maximum.reduceat(np.where(deleted, places, -1), found.starts)
    sizes = np.diff(np.append(found.starts, len(times)))
    times = np.where(places >= np.repeat(last, sizes), times, NEVER)
    return np.maximum.reduceat(times, found.starts), last >= 0


def _newer(these: list[Ints], those: list[Ints]) -> Mask:
    newer, level = np.zeros(len(these[0]), np.bool_), np.ones(len(these[0]), np.bool_)
    for a, b in zip(these, those, strict=True):
        newer |= level & (a > b)
        level &= a == b
    return newer


def _expired(newest: Ints, limit: int) -> Mask:
    expired: Mask = (newest != NEVER) & (newest < limit)
    return expired


def _enter(expiry: Expiry, hashes: Hashes, newest: Ints, mask: Mask, retain: int | None) -> None:
    mask = mask & (newest != NEVER)
    if retain is not None and mask.any():
        expiry.enter(hashes[mask], after(newest[mask], retain))
