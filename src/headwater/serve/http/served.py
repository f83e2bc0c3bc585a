"""What one server serves, and how its routes find it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request

from headwater.capture.intake import Webhooks
from headwater.errors import DeciderNotFound, TopicNotFound, UsageError, ViewNotFound
from headwater.log.groups import Groups
from headwater.log.opening import groups_of, queues_of
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.queues import Queues
from headwater.log.spec import INTERNAL
from headwater.log.topic import Topic
from headwater.serve.http.channels import Channels
from headwater.serve.http.covering import Covering
from headwater.serve.http.limits import Connections, Limits
from headwater.serve.http.permissions import Guard
from headwater.serve.http.pulse import Pulse
from headwater.serve.view import View


class Decided(Protocol):
    """What came of a command."""

    @property
    def events(self) -> Iterable[Any]: ...

    @property
    def position(self) -> Position: ...

    @property
    def version(self) -> int: ...

    @property
    def repeated(self) -> bool: ...


class Decider(Protocol):
    def submit(self, aggregate: str, kind: str, payload: Mapping[str, Any], command_id: str | None) -> Decided:
        """Decide and append, or raise; with an id, the same command twice is one."""


@dataclass(frozen=True)
class Served:
    topics: Mapping[str, Topic]
    """What may be appended to; any other topic of the log can be read."""
    views: Mapping[str, View]
    deciders: Mapping[str, Decider]
    hooks: Mapping[str, Webhooks]
    maybe_log: Log | None
    guard: Guard
    limits: Limits
    connections: Connections
    channels: Channels
    covering: Covering
    maybe_pulse: Pulse | None

    @property
    def log(self) -> Log:
        if self.maybe_log is None:
            raise UsageError(what="this server was started without its log", do="Use headwater serve")
        return self.maybe_log

    @property
    def pulse(self) -> Pulse:
        if self.maybe_pulse is None:
            raise UsageError(what="this server was started without its log", do="Use headwater serve")
        return self.maybe_pulse

    def topic(self, name: str) -> Topic:
        """To append to."""
        if name not in self.topics:
            raise TopicNotFound(topic=name, known=self.topics)
        return self.topics[name]

    def readable(self, name: str) -> Topic:
        """To read: also what pipelines make, and dead letters; not what Headwater keeps for itself."""
        if name in self.topics:
            return self.topics[name]
        if self.maybe_log is None or name.startswith(INTERNAL):
            raise TopicNotFound(topic=name, known=self.topics)
        return Topic(self.log, self.log.topic(name))

    def names(self) -> list[str]:
        """Of all topics that can be read."""
        known = [spec.name for spec in self.maybe_log.topics()] if self.maybe_log is not None else []
        return sorted({*self.topics, *(name for name in known if not name.startswith(INTERNAL))})

    def view(self, name: str) -> View:
        if name not in self.views:
            raise ViewNotFound(view=name, known=self.views)
        return self.views[name]

    def decider(self, name: str) -> Decider:
        if name not in self.deciders:
            raise DeciderNotFound(decider=name, known=self.deciders)
        return self.deciders[name]

    @property
    def groups(self) -> Groups:
        return groups_of(self.log)

    @property
    def queues(self) -> Queues:
        return queues_of(self.log)

    def may_read(self, request: Request, kind: str, name: str) -> bool:
        return self.guard.may(request.state.principal, "read", f"{kind}:{name}")
