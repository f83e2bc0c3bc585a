"""What a capture must know when it starts again, kept in a topic of its own in the log.

`_headwater.capture.<name>` is an upsert table in one partition: what -> a JSON value. Its rows are appended together
with the records that they tell of, so the two cannot part.

    source     where the changes come from: the server's identity, the slot, the position of its beginning
    pieces     the first snapshot: ranges of tables, and which of them are done
    tables     those that have been read once
    overlaps   what was read from later snapshots, which show some of what the stream will tell
    asked      tables that somebody wants compared with their topics; "*" is all
    comparing  tables for which that is under way
    feed       of a feed: where it listens or which files it reads, and what it does when it is slow
    tally      of a feed: what became of its lines
    file.*     of a feed: how far each file is read, by its device and inode
"""

from __future__ import annotations

import json
from typing import Any

from headwater.errors import TopicNotFound
from headwater.log.position import Position
from headwater.log.protocol import Log, Part, Producer
from headwater.log.spec import INTERNAL, TopicSpec
from headwater.log.topic import Topic
from headwater.records import DELETED, schema_of

PREFIX = f"{INTERNAL}capture."


class State:
    def __init__(self, log: Log, capture: str) -> None:
        self._log = log
        self.topic = PREFIX + capture
        self._values: dict[str, Any] = {}
        self._seen = Position()

    def make(self) -> None:
        columns = schema_of({"what": "string", "value": "string"})
        self._log.create(TopicSpec(self.topic, columns, key=("what",), kind="table", partitions=1, upsert=True))

    def load(self) -> None:
        try:
            spec = self._log.topic(self.topic)
        except TopicNotFound:
            self._values = {}
            return
        self._seen = self._log.snapshot([self.topic]).position
        rows = Topic(self._log, spec).read(end=self._seen).to_pylist()
        newest = {row["what"]: row for row in rows}
        self._values = {what: json.loads(row["value"]) for what, row in newest.items() if not row[DELETED]}

    def refresh(self) -> None:
        """See what others have written, if they have."""
        if self._log.snapshot([self.topic]).position != self._seen:
            self.load()

    def get(self, what: str) -> Any:
        return self._values.get(what)

    def beginning(self, prefix: str) -> dict[str, Any]:
        """What is kept under names that begin so, by the rest of the name."""
        return {what.removeprefix(prefix): value for what, value in self._values.items() if what.startswith(prefix)}

    def parts(self, producer: Producer, **changes: Any) -> list[Part]:
        """For the append that makes these true; None forgets. Known here once `remember` is told."""
        rows = [{"what": what, "value": json.dumps(value), DELETED: value is None} for what, value in changes.items()]
        return Topic(self._log, self._log.topic(self.topic)).parts(rows, producer=producer)

    def remember(self, **changes: Any) -> None:
        for what, value in changes.items():
            if value is None:
                self._values.pop(what, None)
            else:
                self._values[what] = value


def captures_in(log: Log) -> list[str]:
    """The names of all captures that this log knows."""
    return sorted(spec.name.removeprefix(PREFIX) for spec in log.topics() if spec.name.startswith(PREFIX))


def ask(log: Log, capture: str, tables: list[str]) -> None:
    """Have these tables compared with their topics, by the run that is on or the next one."""
    state = State(log, capture)
    state.load()
    wanted = dict.fromkeys([*(state.get("asked") or []), *tables])
    rows = [{"what": "asked", "value": json.dumps(list(wanted))}]
    Topic(log, log.topic(state.topic)).upsert(rows)
