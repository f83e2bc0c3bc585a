"""Pipelines as they are declared, and who reads whom: what a change of one means for the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from headwater.errors import UsageError
from headwater.process.diff import Description


@dataclass(frozen=True)
class Declared:
    """A pipeline of the code at hand. `inputs` are topics, or other pipelines by their name."""

    name: str
    fingerprint: str
    description: Description
    inputs: tuple[str, ...]


def fingerprint_of(description: Description) -> str:
    """Of all that is described but `sql`, which is only told: the plan counts, not how its text was laid out."""
    counting = {name: part for name, part in description.items() if name != "sql"}
    return hashlib.blake2b(json.dumps(counting, sort_keys=True).encode(), digest_size=8).hexdigest()


def identified(declared: Iterable[Declared]) -> list[Declared]:
    """In the order of dependence; the fingerprint of whoever reads pipelines covers theirs.

    So a changed view changes all that depend on it, and each of them is found again with what it was built on.
    """
    known = {each.name: each for each in declared}
    found: dict[str, Declared] = {}
    try:
        order = list(TopologicalSorter({name: _pipelines(each, known) for name, each in known.items()}).static_order())
    except CycleError as error:
        raise UsageError(
            what=f"{' reads '.join(error.args[1])}: a view cannot depend on itself", do="Break the circle"
        ) from None
    for name in order:
        one = known[name]
        upstream = {read: found[read].fingerprint for read in sorted(_pipelines(one, known))}
        if upstream:
            text = json.dumps([one.fingerprint, upstream], sort_keys=True)
            fingerprint = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            one = replace(one, fingerprint=fingerprint, description={**one.description, "upstream": upstream})
        found[name] = one
    return list(found.values())


def with_dependents(name: str, declared: Sequence[Declared]) -> list[Declared]:
    """The pipeline of that name and all that read it, directly or not. `declared` are in the order of dependence."""
    wanted = {name}
    for each in declared:
        if wanted & set(each.inputs):
            wanted.add(each.name)
    return [each for each in declared if each.name in wanted]


def _pipelines(declared: Declared, known: dict[str, Declared]) -> set[str]:
    return {name for name in declared.inputs if name in known}
