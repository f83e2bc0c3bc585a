"""Names that only one aggregate of a decider may hold at a time: an email address, a nickname, a seat.

What an aggregate holds is a function of its state, so what it takes and gives up with a command is the difference. The
topic `<decider>.reserved` is a table of the names that are held, by whom. It is versioned: a name is taken by one
record and given up by the next, so that an odd version means that it is held. No search is needed, and two who want the
same name at the same moment expect the same version: one of them gets it.
"""

from __future__ import annotations

from typing import Any

from headwater.decide.aggregates import Aggregate
from headwater.decide.spec import DeciderSpec
from headwater.errors import DecisionFailed, NameTaken
from headwater.log.protocol import Log
from headwater.records import DELETED

Name = tuple[str, str]


def names_of(spec: DeciderSpec, aggregate: str, state: Any, version: int) -> set[Name]:
    """The names held in a state; before its first event an aggregate holds none. None is no name."""
    if spec.unique is None or version == 0:
        return set()
    try:
        return {(str(scope), str(value)) for scope, value in spec.unique(state) if value is not None}
    except Exception as error:
        why = f"raised {type(error).__name__}: {error}"
        raise DecisionFailed(decider=spec.name, aggregate=aggregate, act="unique", why=why) from error


class Names:
    """The names that a group of commands takes and gives up."""

    def __init__(self, spec: DeciderSpec, log: Log) -> None:
        self._spec = spec
        self._log = log
        self._versions: dict[Name, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.expected: dict[tuple[Any, ...], int] = {}

    def change(self, aggregate: str, before: Aggregate, after: Any) -> None:
        if self._spec.unique is None:
            return
        held = names_of(self._spec, aggregate, before.state, before.version)
        wanted = names_of(self._spec, aggregate, after, before.version + 1)
        taken, given_up = sorted(wanted - held), sorted(held - wanted)
        for name in taken:
            if self._version(name) % 2:
                scope, value = name
                raise NameTaken(decider=self._spec.name, aggregate=aggregate, scope=scope, value=value)
        for name in taken:
            self._add(name, {"holder": aggregate})
        for name in given_up:
            if self._version(name) % 2:  # else it was held before names had to be unique
                self._add(name, {DELETED: True})

    def _version(self, name: Name) -> int:
        if name not in self._versions:
            (self._versions[name],) = self._log.versions(self._spec.reserved_topic, [name])
        return self._versions[name]

    def _add(self, name: Name, rest: dict[str, Any]) -> None:
        self.expected.setdefault(name, self._versions[name])
        self._versions[name] += 1
        self.rows.append({"scope": name[0], "value": name[1], **rest})
