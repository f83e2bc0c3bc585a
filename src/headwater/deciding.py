"""The deciders of an app: the part of `App` that takes commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headwater.clock import Clock
from headwater.decide import Decided, Decider, DeciderSpec
from headwater.decide.spec import SNAPSHOT_EVERY, TRIES, Upcaster
from headwater.errors import DeciderNotFound, UsageError
from headwater.log import Log, Topic


class Deciding:
    """What an app has of it: `app.decider(...)`, `app.command(...)`, `app.deciders`."""

    log: Log
    folder: Path
    clock: Clock
    _topics: dict[str, Topic]
    _deciders: dict[str, Decider]

    @property
    def deciders(self) -> Mapping[str, Decider]:
        return MappingProxyType(self._deciders)

    def decider(
        self,
        name: str,
        *,
        initial: Any,
        decide: Callable[[Any, Any], Any],
        evolve: Callable[[Any, Any], Any],
        events: Sequence[type],
        commands: Sequence[type],
        unique: Callable[[Any], Iterable[tuple[str, Any]]] | None = None,
        refusals: Sequence[type[Exception]] = (),
        upcasters: Mapping[tuple[str, int], Upcaster] | None = None,
        topic: str | None = None,
        partitions: int = 4,
        snapshot_every: int | None = SNAPSHOT_EVERY,
        revision: str = "",
        tries: int = TRIES,
    ) -> Decider:
        """Commands become events: `decide(command, state)` gives events, `evolve(state, event)` the next state; both
        are pure. Events go to the stream `topic` (its name is the decider's unless given), one column a field.

        `unique(state)` names what no two aggregates may hold; `refusals` are exceptions of `decide` that mean the same
        as `hw.refuse`; `upcasters` bring old events up to date. See docs/commands.md.
        """
        spec = DeciderSpec(
            name,
            initial,
            decide,
            evolve,
            tuple(events),
            tuple(commands),
            unique=unique,
            refusals=tuple(refusals),
            upcasters=dict(upcasters or {}),
            topic=topic or "",
            partitions=partitions,
            snapshot_every=snapshot_every,
            revision=revision,
            tries=tries,
        )
        if name in self._deciders or spec.events_topic in self._topics:
            what = f"decider {name!r} or its topic {spec.events_topic!r} is declared twice"
            raise UsageError(what=what, do="Give it a name of its own, or another topic='...'")
        made = self._deciders[name] = Decider(spec, self.log, self.folder / "deciders", clock=self.clock)
        self._topics[spec.events_topic] = Topic(self.log, made.topic)
        return made

    def command(
        self, decider: str, aggregate: str, command: Any, *, command_id: str | None = None, expect: int | None = None
    ) -> Decided:
        """Send a command to an aggregate of a decider; returns its events and the position after them, durable."""
        if decider not in self._deciders:
            raise DeciderNotFound(decider=decider, known=self._deciders)
        return self._deciders[decider].command(aggregate, command, command_id=command_id, expect=expect)

    def _close_deciders(self) -> None:
        for decider in self._deciders.values():
            decider.close()
