"""Rules: *principal P is allowed, or denied, operation O on resource R*. Nothing is allowed that no rule allows.

A resource is written `kind:name`; a pattern that ends in `*` stands for all that begin like it, any other for itself
alone. One denial outweighs all that allows. There is no setting that lets people in where no rule is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headwater.errors import BadRule

Effect = Literal["allow", "deny"]
OPERATIONS = ("read", "append", "consume", "command", "admin")
KINDS = ("topic", "view", "group", "queue", "decider", "server")
_PATTERN = re.compile(r"\*|(\w+):([A-Za-z0-9_.\-]*\*?)")


@dataclass(frozen=True)
class Principal:
    """Who asks: the name that rules know."""

    name: str


ANYONE = Principal("anyone on this machine")
"""Who is there while no token and no user was ever made, on a loopback address."""


@dataclass(frozen=True)
class Rule:
    principal: str
    effect: Effect
    operation: str
    resource: str

    def matches(self, principal: str, operation: str, resource: str) -> bool:
        return self.principal == principal and self.operation in ("*", operation) and _within(self.resource, resource)

    def __str__(self) -> str:
        return f"{self.effect} {self.operation} {self.resource}"


def parse_rule(principal: str, effect: Effect, text: str) -> Rule:
    """From `OPERATION RESOURCE`, as commands take it."""
    operation, space, resource = text.strip().partition(" ")
    found = _PATTERN.fullmatch(resource.strip())
    if not space or found is None:
        raise BadRule(text=text, why="it is not an operation, a space and kind:name")
    if operation not in (*OPERATIONS, "*"):
        raise BadRule(text=text, why=f"operations are {', '.join(OPERATIONS)} and *")
    if found[1] is not None and (found[1] not in KINDS or not found[2]):
        raise BadRule(text=text, why=f"resources are {', '.join(KINDS)}, each with a name or a pattern")
    return Rule(principal, effect, operation, resource.strip())


def allowed(rules: Iterable[Rule], principal: str, operation: str, resource: str) -> bool:
    effects = {rule.effect for rule in rules if rule.matches(principal, operation, resource)}
    return effects == {"allow"}


def _within(pattern: str, resource: str) -> bool:
    return resource.startswith(pattern[:-1]) if pattern.endswith("*") else resource == pattern
