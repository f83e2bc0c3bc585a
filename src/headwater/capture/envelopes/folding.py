"""The messages about one table become records of its topic.

The old row of an update or a delete is the one that the topic holds, whatever the message says of it: then weights add
up to the table, also if only keys are told of old rows (REPLICA IDENTITY DEFAULT), or a message comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headwater.capture.envelopes.message import Act, Message, NotHeld, Patch, Place, Unreadable
from headwater.capture.envelopes.mongodb import patched
from headwater.capture.envelopes.order import Order
from headwater.capture.envelopes.values import MISSING, Meaning, read_value
from headwater.capture.held import Held, Key, Row
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec


@dataclass(frozen=True)
class Taken:
    """A message, and where it stands."""

    message: Message
    partition: int
    offset: int


@dataclass(frozen=True)
class _Typed:
    """In the topic's types. `moved` is the key that the row had before, if that was another."""

    key: Key
    row: Row | None = None
    old: Row | None = None
    moved: Key | None = None
    patch: Patch | None = None


class Folding:
    def __init__(self, log: Log, spec: TopicSpec, meaning: Meaning, order: Order) -> None:
        self.spec = spec
        self._held = Held(log, spec)
        self.order = order
        self._gone: tuple[Place | None, Row] | None = None
        """The row that went last: a changed key is told as a delete and, at the same place, a new row."""
        self.seen = 0
        """Changes that were left out, for they were taken before."""
        self._meaning = {False: meaning, True: replace(meaning, documents=True)}

    def changes(self, taken: Sequence[Taken], bad: Callable[[Taken, str], None]) -> list[tuple[Row, int]]:
        """Rows that go (-1) and come (+1), in order. `bad` is told what cannot be read, which is then left out."""
        typed: list[tuple[Taken, _Typed]] = []
        for each in taken:
            try:
                typed.append((each, self._typed(each.message)))
            except Unreadable as why:
                bad(each, str(why))
        keys = {key for _, change in typed for key in (change.key, change.moved) if key is not None}
        now: dict[Key, Row] = self._held.rows(keys)
        told: list[tuple[Row, int]] = []
        for each, change in typed:
            message, passed = each.message, self.order.passed(each.message)
            if self.order.seen(change.key, message):
                self.seen += message.act is not Act.TOMBSTONE
                continue
            if change.moved is not None:
                self.order.take(change.moved, message.place, removed=True)
            try:
                told += self._apply(change, now, message.place)
            except NotHeld as why:
                self.seen += passed
                if not passed:
                    bad(each, str(why))
            except Unreadable as why:
                bad(each, str(why))
        return told

    def _apply(self, change: _Typed, now: dict[Key, Row], place: Place | None) -> list[tuple[Row, int]]:
        before = now.get(change.moved or change.key)
        if before is None and self._gone is not None and place is not None and self._gone[0] == place:
            before = self._gone[1]
        row = self._whole(change, before)
        told = []
        if change.moved is not None and (gone := now.pop(change.moved, None)) is not None:
            told.append((gone, -1))
        held = now.get(change.key)
        if row == held:
            return told
        if held is not None and (row is None or self.spec.weighted):
            told.append((held, -1))
        if row is None:
            del now[change.key]
            self._gone = (place, held) if held is not None else None
        else:
            now[change.key] = row
            told.append((row, 1))
        return told

    def _whole(self, change: _Typed, before: Row | None) -> Row | None:
        """The row with what was not sent put back from the row before."""
        if change.patch is not None:
            return self._patched(change.key, change.patch, before)
        if change.row is None:
            return None
        missing = [name for name, value in change.row.items() if value is MISSING]
        old = {name: value for name, value in (change.old or {}).items() if value is not None and value is not MISSING}
        found = {**(before or {}), **old}
        for name in missing:
            if name not in found:
                raise NotHeld(f"{name!r} of key {change.key} did not change and was not sent, and is not held here")
        return {**change.row, **{name: found[name] for name in missing}} if missing else change.row

    def _patched(self, key: Key, patch: Patch, before: Row | None) -> Row:
        if before is None:
            raise NotHeld(f"it tells only what changed of key {key}, whose row is not held here")
        raw = patched(before, patch)
        paths = [*patch.updated, *patch.removed, *(path for path, _ in patch.truncated)]
        touched = {path.partition(".")[0] for path in paths}
        return {
            name: self._value(name, raw[name], Message(Act.PATCH, documents=True)) if name in touched else value
            for name, value in before.items()
        }

    # --- types ---

    def _typed(self, message: Message) -> _Typed:
        if message.act is Act.PUT and message.row is not None:
            named = {**(message.key or {}), **message.row}
            row = {name: self._value(name, named.get(name), message) for name in self.spec.schema.names}
            key = self._key(row)
            old = self._old(message) if message.old is not None else None
            told = old is not None and all(old[name] is not None for name in self.spec.key)
            was = self._key(old) if old is not None and told else key
            return _Typed(key, row, old, was if was != key else None)
        named = {**(message.old or {}), **(message.key or {})}
        key = self._key({name: self._value(name, named.get(name), message) for name in self.spec.key})
        return _Typed(key, patch=message.patch)

    def _old(self, message: Message) -> Row:
        """As far as it is told, and needed: the key, and columns that the new row lacks."""
        old, row = message.old or {}, message.row or {}
        names = [name for name in self.spec.schema.names if name in self.spec.key or name in row]
        return {name: self._value(name, old.get(name), message) for name in names}

    def _key(self, row: Row) -> Key:
        for name in self.spec.key:
            if row[name] is None or row[name] is MISSING:
                raise Unreadable(f"it does not tell {name!r}, which is in the key of topic {self.spec.name!r}")
        return self._held.key(row)

    def _value(self, name: str, value: object, message: Message) -> object:
        kind, meaning = self.spec.schema.field(name).type, self._meaning[message.documents]
        try:
            return read_value(value, kind, message.types.get(name), meaning)
        except Unreadable as why:
            raise Unreadable(f"column {name!r}: {why}") from None
