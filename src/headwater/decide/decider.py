"""A decider in the user's hand: send commands, look at aggregates, now and as they were."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.clock import Clock
from headwater.decide.aggregates import Aggregates, Recorded, wanted_until
from headwater.decide.checking import Checked, check
from headwater.decide.columns import EventRows
from headwater.decide.commands import CommandClasses
from headwater.decide.group import Decided, Groups, Request
from headwater.decide.nearby import Nearby
from headwater.decide.spec import DeciderSpec
from headwater.decide.together import Together
from headwater.decide.turnstile import Turnstile
from headwater.errors import TopicNotFound
from headwater.log.keyhash import hash_one
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.typenames import TIMESTAMP

_COMMANDS = pa.schema(
    {
        "id": pa.string(),
        "command_id": pa.string(),
        "type": pa.string(),
        "version": pa.int64(),
        "events": pa.int64(),
        "at": TIMESTAMP,
    }
)
_RESERVED = pa.schema({"scope": pa.string(), "value": pa.string(), "holder": pa.string()})


class Decider:
    """Every method may be called from any thread. Its topics are made when it is."""

    def __init__(self, spec: DeciderSpec, log: Log, folder: Path, *, clock: Clock) -> None:
        self.spec = spec
        self._log = log
        self._rows = EventRows(spec)
        self._commands = CommandClasses(spec)
        self.topic = log.create(
            TopicSpec(
                spec.events_topic,
                _with_columns_of_old_events(log, spec.events_topic, self._rows.schema),
                key=("id",),
                time="at",
                partitions=spec.partitions,
                versioned=True,
            )
        )
        log.create(TopicSpec(spec.commands_topic, _COMMANDS, key=("id", "command_id"), partitions=1, versioned=True))
        if spec.unique is not None:
            log.create(
                TopicSpec(
                    spec.reserved_topic,
                    _RESERVED,
                    key=("scope", "value"),
                    kind="table",
                    partitions=1,
                    upsert=True,
                    versioned=True,
                )
            )
        self._nearby = Nearby(folder / f"{spec.name}.db", log)
        self._turnstile = Turnstile(folder / f"{spec.name}.lock")
        self._aggregates = Aggregates(spec, log, self._nearby, self._rows)
        groups = Groups(spec, log, self._rows, self._aggregates, self._nearby, clock=clock, turnstile=self._turnstile)
        self._together: Together[Request] = Together(groups.decide)

    @property
    def name(self) -> str:
        return self.spec.name

    # --- commands ---

    def command(
        self, aggregate: str, command: Any, *, command_id: str | None = None, expect: int | None = None
    ) -> Decided:
        """Decide on a command and append its events, durably; raises `CommandRefused` if it is refused.

        The same `command_id` again, for the same aggregate, is answered with the first answer, by whichever process.
        With `expect`, the aggregate must be at that version: else `VersionConflict`.
        """
        return self._sent(aggregate, self._commands.checked(command), command_id, expect)

    def submit(self, aggregate: str, kind: str, payload: Mapping[str, Any], command_id: str | None = None) -> Decided:
        """The same for a command by the name of its class and its fields as JSON has them; `BadCommand` if unfit."""
        return self._sent(aggregate, self._commands.parsed(kind, payload), command_id, None)

    def _sent(self, aggregate: str, command: Any, command_id: str | None, expect: int | None) -> Decided:
        self._commands.named(aggregate, "id")
        if command_id is not None:
            self._commands.named(command_id, "command_id")
        request = Request(aggregate, command, command_id, expect)
        self._together.do(request)
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        return request.answer

    # --- aggregates ---

    def state(self, aggregate: str, *, as_of: int | datetime | Position | None = None) -> Any:
        """The aggregate's state now, or after its events up to a version, a time or a position."""
        if as_of is None:
            return copy.deepcopy(self._aggregates.current([aggregate])[aggregate].state)
        hashed = hash_one([aggregate]) or 0
        partition = (hashed >> 32) % self.topic.partitions
        return self._aggregates.state_at(aggregate, wanted_until(as_of, self.topic.name, partition))

    def version(self, aggregate: str) -> int:
        """How many events it has; 0: nothing has happened to it."""
        return self._log.versions(self.topic.name, [(aggregate,)])[0]

    def history(self, aggregate: str) -> list[Recorded]:
        """Its events from the first on, as today's classes, with when and by which command they came."""
        return self._aggregates.history(aggregate)

    # --- upkeep ---

    def check(self) -> Checked:
        """All that is kept for speed, against a full replay of the topic; and that the topic is what it should be."""
        return check(self.spec, self._log, self._nearby, self._aggregates, self._rows)

    def forget(self, aggregate: str) -> None:
        """What lies beside the log of an aggregate that is forgotten: its snapshot, and what is in memory."""
        self._aggregates.drop([aggregate])
        self._nearby.forget(aggregate)

    def close(self) -> None:
        self._nearby.close()
        self._turnstile.close()


def _with_columns_of_old_events(log: Log, topic: str, schema: pa.Schema) -> pa.Schema:
    """Fields that no event has any more stay columns: stored events have them, and upcasters read them."""
    try:
        stored = log.topic(topic).schema
    except TopicNotFound:
        return schema
    fields = {each.name: each for each in stored} | {each.name: each for each in schema}
    return pa.schema(list(fields.values()))
