"""The root of all errors: what happened, what to do next; survives pickling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class HeadwaterError(Exception):
    """The root: catch this to catch everything that Headwater raises on purpose."""

    def __init__(self, what: str, *, do: str = "") -> None:
        super().__init__(f"{what}. {do}." if do else f"{what}.")
        self.what = what
        self.do = do

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[HeadwaterError], args: tuple[Any, ...], fields: dict[str, Any]) -> HeadwaterError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
