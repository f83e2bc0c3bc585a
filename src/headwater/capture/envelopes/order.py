"""Whether a message was seen before: who captures delivers at least once.

What is delivered again is the end of what was delivered, all of it and in order: so a message is left out only if it
stands before one that was taken, in the same history, and was not committed later. Whenever that cannot be told, it is
taken, and so is everything behind it: rows are told whole, so the table ends as it was, with nothing twice.
"""

from __future__ import annotations

import json
from typing import Any

from headwater.capture.envelopes.message import Act, Message, Place


class Order:
    """Of one partition of the topic that is read."""

    def __init__(self, told: Any = None) -> None:
        mark = told["mark"] if told else None
        self._mark = Place(mark[0], tuple(mark[1]), mark[2]) if mark else None
        self._deleted: str | None = told["deleted"] if told else None

    def as_json(self) -> Any:
        mark = self._mark
        told = [mark.history, list(mark.at), mark.time_ms] if mark is not None else None
        return {"mark": told, "deleted": self._deleted}

    def seen(self, message: Message) -> bool:
        """A tombstone says nothing new behind its own delete. Alone, where compaction took the delete away, it does,
        and as it does not say when, what follows it counts anew."""
        if message.act in (Act.NOTE, Act.NOTHING):
            return False
        before, self._deleted = self._deleted, _key(message) if message.act is Act.REMOVE else None
        if message.act is Act.TOMBSTONE and before == _key(message):
            return True
        place, mark = message.place, self._mark
        again = place is not None and mark is not None and _behind(mark, place)
        if not again:
            self._mark = place
        return again


def _behind(mark: Place, place: Place) -> bool:
    comparable = place.history == mark.history and not place.begins
    return comparable and place.at < mark.at and place.time_ms <= mark.time_ms


def _key(message: Message) -> str:
    return json.dumps(message.key, sort_keys=True, default=str)
