"""The changes of a view for somebody who follows it: each once, in order, across restarts and versions of the view.

    feed = view.feed()
    state = feed.start()                      # all rows, and a cursor
    told = feed.since(state.cursor)           # what has changed since then, and the next cursor; or why it begins anew

Whoever adds up the weights of what it is told has the view's rows as of `at`, exactly, at every step.

A cursor names the version of the view, the append up to which it was told, and the offsets in that version's topic.
When another version has become current, the feed first goes on in the old one until the new one covers all that was
told; then it tells the difference between what the old version said at the cursor and what the new one says, once, and
goes on in the new one. Rows of other columns have no difference: then it tells all of the new ones, as `OtherColumns`.
If what has changed cannot be known any more, it says so: a `Gap`, after which the follower starts again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.errors import BadCursor, TopicNotFound
from headwater.log.coverage import Made, all_inputs, covered_by, reach
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Snapshot
from headwater.log.spec import TopicSpec
from headwater.records import WEIGHT
from headwater.serve.past import changes_between, difference, rows_at

MAX_ROWS = 100_000
"""Of one answer, about: an append is told whole."""
_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})(?:@(.+))?", re.DOTALL)


class Lookup(Protocol):
    """The versions of views, as they are recorded at the time of asking."""

    def current(self, view: str) -> Made | None:
        """None: it was never built."""

    def version(self, view: str, number: int) -> Made | None:
        """None: it was dropped, or never was."""

    def made_by(self, topic: str) -> Made | None: ...


@dataclass(frozen=True)
class Cursor:
    """How far a follower was told. As text it is `2.1234@by_page.v2:0=12,1=7`: version, append, offsets."""

    version: int
    """0: before the first."""
    number: AppendNumber
    position: Position
    """In the topic of that version."""

    def __str__(self) -> str:
        return f"{self.version}.{self.number}" + (f"@{self.position}" if self.position != Position() else "")

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """As it was given out; `BadCursor` for anything else."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise BadCursor(text=text, why="it is not 'VERSION.APPEND@TOPIC:PARTITION=OFFSET,...'")
        position = Position.parse(found[3] or "")
        if len(position.topics) > 1:
            raise BadCursor(text=text, why="it is of several topics")
        return cls(int(found[1]), AppendNumber(int(found[2])), position)


@dataclass(frozen=True)
class Changes:
    """`rows` have the view's columns and `_weight`; those that went come before those that came. They may be none: then
    the view has read on and nothing of it has changed."""

    rows: pa.Table
    cursor: Cursor
    """To be given to `since` for what comes next."""
    at: Position
    """What the view reflects of its inputs, and of theirs, once these rows are added."""


@dataclass(frozen=True)
class Gap:
    """What has changed since the cursor cannot be told any more: begin again with `Feed.start`."""

    cursor: Cursor
    why: str


@dataclass(frozen=True)
class OtherColumns:
    """A version with other columns has become current: `state` takes the place of all that was told. Nothing is left
    out by that: what came before is in it, what comes after follows its cursor."""

    version: int
    columns: pa.Schema
    state: Changes


class Feed:
    """Of one view. It keeps nothing between calls: any number of followers, threads and processes may use their own."""

    def __init__(self, log: Log, lookup: Lookup, view: str, schema: pa.Schema) -> None:
        self._log = log
        self._lookup = lookup
        self._view = view
        self._stored = schema.append(pa.field(WEIGHT, pa.int64()))

    def start(self) -> Changes:
        """All rows of the view as it is now, and the cursor to go on from."""
        while True:
            made = self._lookup.current(self._view)
            end = self._end(made) if made is not None else None
            if made is None or end is None:
                return Changes(self._stored.empty_table(), Cursor(0, AppendNumber(0), Position()), Position())
            rows = rows_at(self._log, made.topic, end.position)
            if rows is not None:  # else it was compacted beyond its end as we saw it: it has gone on since
                return self._told(made, end, rows)

    def since(self, cursor: Cursor, *, max_rows: int = MAX_ROWS) -> Changes | OtherColumns | Gap | None:
        """What has changed since the cursor, up to now or about `max_rows` of it; None if nothing has happened."""
        self._check(cursor)
        current = self._lookup.current(self._view)
        if current is not None and current.version != cursor.version:
            moved = self._moved(cursor, current)
            if moved is not None:
                return moved
        made = self._lookup.version(self._view, cursor.version) if cursor.version else None
        if made is None:
            return None if cursor.version == 0 else Gap(cursor, f"version {cursor.version} of the view was dropped")
        return self._further(cursor, made, max_rows)

    def wait(self, cursor: Cursor, timeout_s: float) -> bool:
        """Wait until something was appended to the log after the cursor, by anybody; `since` tells what it was."""
        return self._log.wait(cursor.number, timeout_s) > cursor.number

    # --- within a version ---

    def _further(self, cursor: Cursor, made: Made, max_rows: int) -> Changes | Gap | None:
        try:
            newest = self._log.snapshot([made.topic])
            if newest.number < cursor.number or not newest.position.covers(cursor.position):
                return Gap(cursor, "the log ends before the cursor: it was restored to an earlier state")
            end = self._end(made, after=cursor, max_rows=max_rows)
        except TopicNotFound:
            return Gap(cursor, f"version {cursor.version} of the view was dropped")
        if end is None or end.number <= cursor.number:
            return None
        rows = changes_between(self._log, made.topic, cursor.position, end.position)
        if rows is None:
            return Gap(cursor, "single changes from then on are gone: they were compacted")
        return self._told(made, end, rows)

    def _end(self, made: Made, *, after: Cursor | None = None, max_rows: int | None = None) -> Snapshot | None:
        """The last append of the version, or one that is not too far from the cursor; None if it has made none."""
        known = Snapshot(after.number, after.position) if after is not None else None
        try:
            boundary = self._log.snapshot([made.topic], after=known, max_rows=max_rows)
        except TopicNotFound:  # declared, and not made yet
            return None
        covered = self._log.covered(made.producer, at=boundary.number)
        return Snapshot(covered.number, boundary.position) if covered is not None else None

    # --- from one version to another ---

    def _moved(self, cursor: Cursor, current: Made) -> Changes | OtherColumns | Gap | None:
        """The difference to the current version, or all of it, or why neither is to be told; None: not yet."""
        end = self._end(current)
        old = self._lookup.version(self._view, cursor.version) if cursor.version else None
        if end is None or (old is not None and not self._caught_up(old, cursor, current, end)):
            return None
        columns = self._log.topic(current.topic)
        other = old is not None and self._has_others(old, columns)
        said = columns.stored.empty_table() if other else self._said(cursor, old, columns.stored)
        if isinstance(said, Gap):
            return said
        rows = rows_at(self._log, current.topic, end.position)
        if rows is None:  # compacted beyond its end as we saw it, so the next call sees more
            return None
        told = self._told(current, end, difference(rows, said))
        return OtherColumns(current.version, columns.schema, told) if other else told

    def _has_others(self, old: Made, columns: TopicSpec) -> bool:
        try:
            return bool(self._log.topic(old.topic).stored != columns.stored)
        except TopicNotFound:  # dropped at this moment: what it said is gone
            return False

    def _said(self, cursor: Cursor, old: Made | None, columns: pa.Schema) -> pa.Table | Gap:
        """What the version of the cursor said there."""
        if old is None:
            dropped = Gap(cursor, f"version {cursor.version} of the view was dropped")
            return dropped if cursor.version else columns.empty_table()
        said = rows_at(self._log, old.topic, cursor.position)
        return Gap(cursor, f"what version {old.version} said then is gone: it was compacted") if said is None else said

    def _caught_up(self, old: Made, cursor: Cursor, current: Made, end: Snapshot) -> bool:
        """Whether the current version reflects all that was told, as far as it reads the same topics."""
        told = covered_by(self._log, self._lookup.made_by, old, at=cursor.number)
        now = covered_by(self._log, self._lookup.made_by, current, at=end.number)
        return now.covers(told.only(all_inputs(self._lookup.made_by, current.inputs)))

    # --- parts ---

    def _told(self, made: Made, end: Snapshot, rows: pa.Table) -> Changes:
        covered = self._log.covered(made.producer, at=end.number)
        progress = covered.progress.end if covered is not None else Position()
        at = reach(self._log, self._lookup.made_by, made.inputs or progress.topics, progress)
        return Changes(rows, Cursor(made.version, end.number, end.position.only([made.topic])), at)

    def _check(self, cursor: Cursor) -> None:
        made = self._lookup.version(self._view, cursor.version) if cursor.version else None
        if made is not None and cursor.position.only([made.topic]) != cursor.position:
            raise BadCursor(text=str(cursor), why=f"it is not one of view {self._view!r}")
