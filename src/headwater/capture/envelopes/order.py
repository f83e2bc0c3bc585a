"""Whether a change was taken before: who captures delivers at least once.

What is delivered again is the end of what was delivered, of each key all of it and in order. So a change is left out
only if it stands, in the history of its source, before one of the same key that was taken, and was not committed later.
Whenever that cannot be told, because the source does not say, or its log began anew, or the key was not met for long,
it is taken, and so is what follows it: rows are told whole, so the table ends as it was, with nothing twice.

    high     the furthest place that was taken. It is kept in the log; the places of keys are not.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from headwater.capture.envelopes.message import Act, Message, Place
from headwater.capture.held import Key

MOST = 100_000
"""Keys of which it is remembered."""


@dataclass(frozen=True)
class _Last:
    place: Place | None
    removed: bool


class Order:
    def __init__(self, told: Any = None) -> None:
        self._last: OrderedDict[Key, _Last] = OrderedDict()
        self._high = Place(told[0], tuple(told[1]), told[2]) if told else None

    def as_json(self) -> Any:
        high = self._high
        return [high.history, list(high.at), high.time_ms] if high is not None else None

    def passed(self, message: Message) -> bool:
        """Whether something at or behind its place was taken: then a row that it tells only in part, and that is not
        there, was taken away behind it."""
        place, high = message.place, self._high
        if place is None or high is None or place.history != high.history:
            return False
        return place.at <= high.at and place.time_ms <= high.time_ms

    def seen(self, key: Key, message: Message) -> bool:
        """Of a tombstone: whether it is behind its own delete. It does not say when it was written: alone, where
        compaction took the delete away, it counts, and so does all that follows it."""
        last = self._last.get(key)
        if last is not None and _before(message, last):
            return True
        self.take(key, message.place, removed=message.act in (Act.REMOVE, Act.TOMBSTONE))
        return False

    def take(self, key: Key, place: Place | None, *, removed: bool) -> None:
        if place is not None and not (self._high and place.history == self._high.history and place.at < self._high.at):
            self._high = place
        self._last[key] = _Last(place, removed)
        self._last.move_to_end(key)
        if len(self._last) > MOST:
            self._last.popitem(last=False)

    def forget(self) -> None:
        self._last.clear()


def _before(message: Message, last: _Last) -> bool:
    if message.act is Act.TOMBSTONE:
        return last.removed
    place, known = message.place, last.place
    if place is None or known is None or place.history != known.history:
        return False
    return place.at < known.at and place.time_ms <= known.time_ms
