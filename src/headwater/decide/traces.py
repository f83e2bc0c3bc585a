"""What else tells of an aggregate than its events: the ids of its commands, and the names that it holds or held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headwater.log.protocol import Log
from headwater.log.topic import Topic

Keys = list[dict[str, Any]]


def traces(log: Log, decider: str, ids: Collection[str]) -> Mapping[str, Keys]:
    """By topic, the keys whose records are about these aggregates. A name that another one holds by now is its own."""
    found: dict[str, Keys] = {}
    there = {spec.name: spec for spec in log.topics()}
    commands, reserved = (there.get(f"{decider}.{kind}") for kind in ("commands", "reserved"))
    if commands is not None and commands.key == ("id", "command_id"):
        rows = Topic(log, commands).read().select(commands.key).to_pylist()
        found[commands.name] = [row for row in rows if row["id"] in ids]
    if reserved is not None and reserved.key == ("scope", "value"):
        holders: dict[tuple[str, str], set[str]] = {}
        for row in Topic(log, reserved).read().to_pylist():
            if row["holder"] is not None:
                holders.setdefault((row["scope"], row["value"]), set()).add(row["holder"])
        own = [name for name, held_by in holders.items() if held_by <= set(ids)]
        found[reserved.name] = [{"scope": scope, "value": value} for scope, value in own]
    return {topic: keys for topic, keys in found.items() if keys}
