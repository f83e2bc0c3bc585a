"""What stands between a command and its events."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors.root import HeadwaterError, listed


class DecideError(HeadwaterError):
    pass


class BadDecider(DecideError):
    """A declaration that cannot work: of its classes, its functions or its events' fields."""

    def __init__(self, *, decider: str, why: str, do: str) -> None:
        super().__init__(f"decider {decider!r}: {why}", do=do)
        self.decider, self.why = decider, why


class DeciderNotFound(DecideError):
    def __init__(self, *, decider: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no decider {decider!r}", do=f"Deciders here: {listed(known)}")
        self.decider = decider


class BadCommand(DecideError):
    """A command that is none of the decider's, or whose fields do not fit. Nothing was decided."""

    def __init__(self, *, decider: str, command: str, why: str, do: str) -> None:
        super().__init__(f"decider {decider!r}, command {command!r}: {why}", do=do)
        self.decider, self.command, self.why = decider, command, why


class CommandRefused(DecideError):
    """The decider said no, for a reason of its own. Nothing was appended; the same command may be taken later."""

    def __init__(self, *, why: str, decider: str = "", aggregate: str = "", command: str = "") -> None:
        where = f"{decider} {aggregate!r}, {command}: " if decider else ""
        super().__init__(
            f"{where}{why}", do="Nothing was changed: send another command, or this one when things differ"
        )
        self.why, self.decider, self.aggregate, self.command = why, decider, aggregate, command


class NameTaken(DecideError):
    """What must be unique over all aggregates of a decider is held by another one."""

    def __init__(self, *, decider: str, aggregate: str, scope: str, value: str) -> None:
        super().__init__(
            f"{decider} {aggregate!r}: the {scope} {value!r} is taken by another {decider}; nothing was appended",
            do=f"Use another {scope}, or wait until it is given up",
        )
        self.decider, self.aggregate, self.scope, self.value = decider, aggregate, scope, value


class Contended(DecideError):
    """Others appended to the same aggregate at every try. Retrying is safe."""

    def __init__(self, *, decider: str, aggregate: str, tries: int) -> None:
        super().__init__(
            f"{decider} {aggregate!r} was changed by others at each of {tries} tries; nothing was appended",
            do="Send the command again; if it goes on, let fewer processes write to it",
        )
        self.decider, self.aggregate, self.tries = decider, aggregate, tries


class DecisionFailed(DecideError):
    """`decide`, `evolve` or `unique` raised, or gave what it may not give: a fault in the code, not in the command."""

    def __init__(self, *, decider: str, aggregate: str, act: str, why: str) -> None:
        super().__init__(
            f"{decider} {aggregate!r}: {act} {why}; nothing was appended", do=f"Mend {act}, then try again"
        )
        self.decider, self.aggregate, self.act, self.why = decider, aggregate, act, why


class HistoryBroken(DecideError):
    """An aggregate's events are not what its decider appended: one is missing, foreign, or of an unknown type."""

    def __init__(self, *, decider: str, aggregate: str, why: str, do: str) -> None:
        super().__init__(f"{decider} {aggregate!r}: {why}", do=do)
        self.decider, self.aggregate, self.why = decider, aggregate, why
