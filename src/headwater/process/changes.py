"""What running this code would change, before anything runs: the answer of `App.diff` and `headwater run --plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.process.decision import decide
from headwater.process.lineage import Declared
from headwater.process.version import Version

ChangeKind = Literal["new", "unchanged", "changed", "gone"]
SIGNS: dict[ChangeKind, str] = {"new": "+", "unchanged": "=", "changed": "~", "gone": "-"}


@dataclass(frozen=True)
class Change:
    """What the code says of one pipeline, against what was built: in which ways, and what to do about it."""

    name: str
    kind: ChangeKind
    details: list[str]
    do: str


def what_would_change(
    declared: Sequence[Declared], versions: Mapping[str, Sequence[Version]], *, app: str
) -> list[Change]:
    """In the order of dependence; then what this app once declared and does not any more."""
    return [*_declared(declared, versions), *_gone(declared, versions, app)]


def _declared(declared: Sequence[Declared], versions: Mapping[str, Sequence[Version]]) -> Iterator[Change]:
    changed: set[str] = set()
    for each in declared:
        decision = decide(each, versions.get(each.name, []))
        if decision.kind == "same":
            yield Change(each.name, "unchanged", [], "")
        elif decision.kind == "new":
            reads = f"reads {', '.join(each.inputs)}"
            yield Change(each.name, "new", [reads], "`headwater run FILE` builds it from the log")
        elif decision.kind == "changed":
            along = [name for name in each.inputs if name in changed]
            changed.add(each.name)
            do = (
                f"It is rebuilt with {' and '.join(along)}"
                if along
                else f"`headwater view rebuild {each.name} --app FILE`"
            )
            yield Change(each.name, "changed", list(decision.details), do)
        else:
            refusal = decision.refusal
            assert refusal is not None
            yield Change(each.name, "changed", [refusal.what], refusal.do)


def _gone(declared: Sequence[Declared], versions: Mapping[str, Sequence[Version]], app: str) -> Iterator[Change]:
    here = {each.name for each in declared}
    for name, of in versions.items():
        current = next((each for each in of if each.state == "current"), None)
        if current is not None and current.app == app and name not in here:
            yield Change(
                name,
                "gone",
                [f"version {current.version} stays as it is, nothing keeps it up to date"],
                f"`headwater view drop {name} --version {current.version} --app FILE` removes it",
            )


def rendered(changes: Sequence[Change]) -> str:
    """One paragraph a pipeline, then the sum; for people."""
    lines = []
    width = max((len(each.name) for each in changes), default=0)
    for each in changes:
        lines.append(f"{SIGNS[each.kind]} {each.name:<{width}}  {each.kind}")
        lines += [f"    {line}" for detail in each.details for line in detail.splitlines()]
        if each.do:
            lines.append(f"    -> {each.do}")
    counts = Counter(each.kind for each in changes)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind])
    return "\n".join([*lines, *([""] if lines else []), f"{told or 'No views'}. Nothing was run."])
