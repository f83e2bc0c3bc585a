"""A feed of server-sent events as one sequence, across connections that break: resumed from the last event's id."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headwater.client.steps import Answer, Call, error_of
from headwater.errors import Unreachable
from headwater.log.position import Position

RETRIES = 20
"""Connections in a row that may fail before it is given up."""
QUIET_S = 40.0
"""A server says something every 15 s: when it has not for so long, the connection is dead."""


@dataclass(frozen=True)
class FeedEvent:
    kind: str
    """`state` (all rows), `changes` (rows with `_weight`), `records` (of a topic), `gap` (some are gone), or `version`
    (a new one, with other `columns`). Of a view, all rows follow these two."""
    rows: list[dict[str, Any]]
    position: Position | None
    """What is reflected, or was read, once these rows are taken in."""
    id: str
    """To go on from in another process."""
    why: str = ""
    """Of a gap."""
    columns: dict[str, str] = field(default_factory=dict)
    """Of a version: names and types."""


class Following:
    """The state of one feed: what to connect with, and what the bytes say. It does no input or output."""

    def __init__(self, path: str, params: dict[str, str], last_id: str | None = None) -> None:
        self._path = path
        self._params = params
        self._last_id = last_id
        self._rest_s = 2.0
        self._failed = 0
        self._line = b""
        self._fields: dict[str, list[str]] = {}

    def call(self) -> Call:
        """Connect with this; everything half read is forgotten."""
        self._line, self._fields = b"", {}
        resume = {"Last-Event-ID": self._last_id} if self._last_id is not None else {}
        return Call("GET", self._path, self._params, {"Accept": "text/event-stream", **resume})

    def refused(self, answer: Answer) -> float:
        """The answer is no feed: how long to wait for the next try; or the error, if trying again will not help."""
        if answer.status not in (429, 502, 503, 504):
            raise error_of(answer)
        return self.lost(f"status {answer.status}")

    def lost(self, why: str) -> float:
        """The connection broke: how long to wait before the next one."""
        self._failed += 1
        if self._failed > RETRIES:
            raise Unreachable(url=self._path, why=why)
        return self._rest_s

    def read(self, data: bytes) -> list[FeedEvent]:
        """The events that are whole with these bytes."""
        self._failed = 0
        *lines, self._line = (self._line + data).split(b"\n")
        return [event for line in lines if (event := self._take(line.rstrip(b"\r").decode())) is not None]

    def _take(self, line: str) -> FeedEvent | None:
        if line:
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        if "retry" in fields:
            self._rest_s = int(fields["retry"][-1]) / 1000
        self._last_id = fields["id"][-1] if "id" in fields else self._last_id
        if "data" not in fields:
            return None
        told = json.loads("\n".join(fields["data"]))
        rows = told.get("records", told.get("rows", []))
        position = Position.parse(told["position"]) if "position" in told else None
        kind = fields.get("event", ["message"])[-1]
        return FeedEvent(kind, rows, position, self._last_id or "", told.get("why", ""), told.get("columns", {}))
