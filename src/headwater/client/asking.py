"""Questions in SQL, and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from headwater.client.steps import ARROW, Call, Steps, asked, sent
from headwater.log.position import Position


@dataclass(frozen=True)
class Decided:
    """What came of a command."""

    events: list[Any]
    position: Position
    version: int
    repeated: bool


def sql(server: str, query: str, *, limit: int = 1000, timeout_s: float = 10.0) -> Steps[pa.Table]:
    """The answer to a SELECT over topics and views, at most `limit` rows of it."""
    body = {"sql": query, "limit": limit, "timeout_s": timeout_s}
    return (yield from sent("POST", "/sql", body, headers={"Accept": ARROW}, wait_s=timeout_s)).table()


def command(
    server: str, decider: str, aggregate: str, kind: str, payload: Mapping[str, Any], *, command_id: str | None = None
) -> Steps[Decided]:
    """Ask a decider; with an id, the same command twice is one, and it is tried again when the connection breaks."""
    path = f"/commands/{quote(decider, safe='')}/{quote(aggregate, safe='')}"
    headers = {"Idempotency-Key": command_id} if command_id is not None else {}
    body = {"kind": kind, "payload": dict(payload)}
    told = (yield from sent("POST", path, body, headers=headers, again=command_id is not None)).json()
    return Decided(told["events"], Position.parse(told["position"]), told["version"], told["repeated"])


def topics(server: str) -> Steps[list[dict[str, Any]]]:
    """All topics that one may read."""
    return _list((yield from asked(Call("GET", "/topics"))).json())


def views(server: str) -> Steps[list[dict[str, Any]]]:
    """All views that one may read."""
    return _list((yield from asked(Call("GET", "/views"))).json())


def _list(told: Any) -> list[dict[str, Any]]:
    return list(told)
