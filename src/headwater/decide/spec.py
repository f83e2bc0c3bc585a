"""What a decider is: an initial state, two pure functions, and the classes of its commands and events."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any, NoReturn

from headwater.errors import BadDecider, BadName, CommandRefused
from headwater.log.spec import NAME

Upcaster = Callable[[dict[str, Any]], Any]
"""From the stored fields of an event, as a dict, to those of its next revision, or to an event of today."""

SNAPSHOT_EVERY = 100
CACHED = 10_000
TRIES = 32


def refuse(why: str) -> NoReturn:
    """Called in `decide`: this command is not to be. The caller gets `CommandRefused`, the log nothing."""
    raise CommandRefused(why=why)


@dataclasses.dataclass(frozen=True)
class DeciderSpec:
    """`initial` is a state, or a function or class that makes one. See docs/commands.md."""

    name: str
    initial: Any
    decide: Callable[[Any, Any], Any]
    evolve: Callable[[Any, Any], Any]
    events: tuple[type, ...]
    commands: tuple[type, ...]
    unique: Callable[[Any], Iterable[tuple[str, Any]]] | None = None
    """The names that an aggregate in this state holds, as (scope, value): no two aggregates may hold the same."""
    refusals: tuple[type[Exception], ...] = ()
    """Exceptions of `decide` that mean the same as `refuse`."""
    upcasters: Mapping[tuple[str, int], Upcaster] = dataclasses.field(default_factory=dict)
    """By type and revision: what makes the next revision of an old event."""
    topic: str = ""
    """Of the events; the decider's own name unless it is given."""
    partitions: int = 4
    snapshot_every: int | None = SNAPSHOT_EVERY
    revision: str = ""
    """To be changed when functions that `evolve` calls change what it does: older snapshots are not used then."""
    tries: int = TRIES
    cached: int = CACHED
    """How many aggregates a process keeps in memory."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadName(name=self.name, kind="decider")
        for wrong, why, do in self._objections():
            if wrong:
                raise BadDecider(decider=self.name, why=why, do=do)

    def _objections(self) -> list[tuple[bool, str, str]]:
        classes = (*self.events, *self.commands)
        odd = [each for each in classes if not (dataclasses.is_dataclass(each) or _is_model(each))]
        names = [getattr(each, "__name__", repr(each)) for each in classes]
        twice = sorted({name for name in names if names.count(name) > 1})
        known = {each.__name__ for each in self.events if isinstance(each, type)}
        functions = {"decide": self.decide, "evolve": self.evolve, "unique": self.unique or (lambda state: ())}
        no_functions = [name for name, each in functions.items() if not callable(each)]
        gaps = [
            (kind, number)
            for kind, number in self.upcasters
            if number < 1 or (number > 1 and kind in known and (kind, number - 1) not in self.upcasters)
        ]
        return [
            (not self.events, "has no events", "Say events=[...]: the dataclasses that decide may give"),
            (not self.commands, "has no commands", "Say commands=[...]: the dataclasses that decide takes"),
            (bool(odd), f"{odd[:1]} is no dataclass and no pydantic model", "Make it a @dataclass(frozen=True)"),
            (bool(twice), f"the name {twice[:1]} stands for two classes", "Rename one: events are found by it"),
            (bool(no_functions), f"{no_functions[:1]} is no function", "Give a function"),
            (bool(gaps), f"an upcaster is missing before {gaps[:1]}", "Revisions count from 1, each leads to the next"),
            (
                self.snapshot_every is not None and self.snapshot_every < 1,
                f"snapshot_every is {self.snapshot_every}",
                "Give a number of events, or None for no snapshots",
            ),
            (self.tries < 1, f"tries is {self.tries}", "Give a number above zero"),
            (self.cached < 1, f"cached is {self.cached}", "Give a number above zero"),
        ]

    @property
    def events_topic(self) -> str:
        return self.topic or self.name

    @property
    def commands_topic(self) -> str:
        return f"{self.name}.commands"

    @property
    def reserved_topic(self) -> str:
        return f"{self.name}.reserved"

    def beginning(self) -> Any:
        """The state of an aggregate that nothing has happened to; each its own, should somebody change it in place."""
        return self.initial() if callable(self.initial) else copy.deepcopy(self.initial)

    def revision_of(self, kind: str) -> int:
        """Today's revision of an event: one more than the last that has an upcaster."""
        return 1 + max((number for name, number in self.upcasters if name == kind), default=0)

    @property
    def fingerprint(self) -> str:
        """Of what makes a state of events: snapshots of another one are not used."""
        told = hashlib.blake2b(digest_size=16)
        functions = [self.evolve, *(self.upcasters[each] for each in sorted(self.upcasters))]
        for part in (self.revision, repr(self.beginning()), *map(_told, functions)):
            told.update(part.encode() + b"\0")
        return told.hexdigest()


def _is_model(kind: Any) -> bool:
    """A pydantic model, told without importing pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_fields") and hasattr(kind, "model_validate")


def _told(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return _code(code) if code is not None else f"{getattr(function, '__module__', '')}.{function!r}"


def _code(code: CodeType) -> str:
    """What a function does, whatever file and line it stands in."""
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"
