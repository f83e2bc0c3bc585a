"""May this code run? What the versions of a pipeline say about the pipeline that the code declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.errors import HeadwaterError, NotCurrent, PlanChanged
from headwater.process.diff import differences
from headwater.process.lineage import Declared
from headwater.process.version import Version

UNKNOWN = "what it was built with is not known: that was before versions were recorded"

Kind = Literal["new", "same", "building", "built", "older", "changed"]


@dataclass(frozen=True)
class Decision:
    """`new`, `same`: run `version`. `building`, `built`, `older`: `version` is this code, but not current. `changed`:
    no version is this code; `details` say in which ways the current one differs."""

    name: str
    kind: Kind
    version: Version | None
    current: Version | None
    details: tuple[str, ...] = ()

    @property
    def refusal(self) -> HeadwaterError | None:
        if self.kind in ("new", "same"):
            return None
        if self.kind == "changed" or self.version is None or self.current is None:
            return PlanChanged(view=self.name, details=self.details)
        return NotCurrent(
            view=self.name, version=self.version.version, state=self.version.state, current=self.current.version
        )


def decide(declared: Declared, versions: Sequence[Version]) -> Decision:
    """`versions` are those of this name, from the first to the last."""
    there = [each for each in versions if each.state != "dropped"]
    current = next((each for each in there if each.state == "current"), None)
    if current is None:
        return Decision(declared.name, "new", None, None)
    if current.fingerprint == declared.fingerprint:
        return Decision(declared.name, "same", current, current)
    known = [each for each in there if each.fingerprint == declared.fingerprint]
    if known:
        version = known[-1]
        kind: Kind = "building" if version.state == "building" else "built" if version.state == "built" else "older"
        return Decision(declared.name, kind, version, current)
    if not current.description:
        return Decision(declared.name, "changed", None, current, (UNKNOWN,))
    details = tuple(differences(current.description, declared.description))
    return Decision(declared.name, "changed", None, current, details)
