"""Events that may come again are appended once, however many processes take them, and through any crash.

What was seen stands in versioned topics `_headwater.seen.<topic>.<period>`, keyed by source and id, and is appended
together with the records, on the condition that no key of them was there: either both are in the log, or neither.

Periods are of the length for which ids are remembered. An id is written into the period of the day, and looked for in
the one before and the one after too, so two processes that meet at the turn of a period see each other; what is older
is deleted. So a repeated event is told apart for at least that length, and at most for twice of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headwater.capture.intake.events import Event
from headwater.clock import Clock
from headwater.durations import Duration, micros
from headwater.errors import BadRequest, TopicNotFound, VersionConflict
from headwater.log.protocol import Appended
from headwater.log.spec import INTERNAL, Settings, TopicSpec
from headwater.log.topic import Topic
from headwater.records import schema_of

SEEN = f"{INTERNAL}seen."
RECORDS_S = 3600.0
"""How long the records themselves stay: only the versions of their keys are asked for."""

LONGEST = 4096
"""Letters of source and id, which are remembered for long."""

Key = tuple[str, str]


class Once:
    """May be used by several threads."""

    def __init__(self, topic: Topic, *, remember: Duration, clock: Clock) -> None:
        self._topic = topic
        self._log = topic.log
        self._length = micros(remember, what="remember")
        self._clock = clock
        self._lock = threading.Lock()
        self._period = -1
        self._seen: tuple[Topic, ...] = ()

    def append(self, events: Sequence[Event]) -> Appended:
        """Those that are new, in one append; `repeated` if none is."""
        rows: dict[Key, dict[str, Any]] = {}
        for event in events:
            if len(event.source) + len(event.id) > LONGEST:
                raise BadRequest(why=f"an event's source and id have more than {LONGEST} letters", do="Shorten them")
            rows.setdefault((event.source, event.id), event.row(self._topic.spec.schema))
        while True:
            seen = self._around(self._clock() // self._length)
            new = self._new(seen, list(rows))
            if not new:
                now = self._log.snapshot([self._topic.name])
                return Appended(now.number, now.position, repeated=bool(rows))
            told = [{"source": source, "id": name} for source, name in new]
            parts = [*self._topic.parts([rows[key] for key in new]), *seen[1].parts(told)]
            try:
                done = self._log.append(parts, expect={each.name: dict.fromkeys(new, 0) for each in seen})
            except VersionConflict:
                continue  # somebody else has appended one of them at this moment
            return Appended(done.number, done.position.only([self._topic.name]), dropped=done.dropped)

    def _new(self, seen: Sequence[Topic], keys: list[Key]) -> list[Key]:
        counts = zip(*(self._log.versions(each.name, keys) for each in seen), strict=True)
        return [key for key, found in zip(keys, counts, strict=True) if not any(found)]

    def _around(self, period: int) -> tuple[Topic, ...]:
        """The topics of the period before, this one, and the next."""
        with self._lock:
            if period != self._period:
                prefix = f"{SEEN}{self._topic.name}."
                self._seen = tuple(Topic(self._log, self._made(f"{prefix}{period + more}")) for more in (-1, 0, 1))
                for spec in self._log.topics():
                    number = spec.name.removeprefix(prefix)
                    if spec.name.startswith(prefix) and number.isdigit() and abs(int(number) - period) > 1:
                        with suppress(TopicNotFound):  # somebody else was faster
                            self._log.delete(spec.name)
                self._period = period
            return self._seen

    def _made(self, name: str) -> TopicSpec:
        columns = schema_of({"source": "string", "id": "string"})
        kept = Settings(retain_s=RECORDS_S)
        key = ("source", "id")
        return self._log.create(TopicSpec(name, columns, key=key, partitions=1, versioned=True, settings=kept))
