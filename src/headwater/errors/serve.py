"""What a store, a view or the HTTP server refuses."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors.root import HeadwaterError, listed


class ServeError(HeadwaterError):
    pass


class ViewNotFound(ServeError):
    def __init__(self, *, view: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no view {view!r}", do=f"Views here: {listed(known)}")
        self.view = view


class BadKey(ServeError):
    def __init__(self, *, view: str, key: tuple[str, ...], given: object) -> None:
        if key:
            told, do = f"view {view!r} has the key ({', '.join(key)}), got {given!r}", "Give one value a key column"
        else:
            told = f"the rows of view {view!r} have no key to ask for them by"
            do = "Read them all, or declare the view with key='...' if a column tells its rows apart"
        super().__init__(told, do=do)
        self.view, self.key = view, key


class NotCovered(ServeError):
    """The view did not reach the asked position in time. The write itself is safe."""

    def __init__(self, *, view: str, asked: str, covers: str, timeout_s: float) -> None:
        super().__init__(
            f"after {timeout_s:g} s view {view!r} covers {covers or 'nothing'}, not yet {asked}",
            do="Ask again or with a longer timeout; is the app running?",
        )
        self.view, self.asked, self.covers, self.timeout_s = view, asked, covers, timeout_s


class NotAnInput(ServeError):
    def __init__(self, *, view: str, asked: Iterable[str], reads: Iterable[str]) -> None:
        super().__init__(
            f"view {view!r} reads none of {listed(asked)}", do=f"Wait for a position of {listed(reads)} instead"
        )
        self.view = view


class BadRequest(ServeError):
    def __init__(self, *, why: str, do: str) -> None:
        super().__init__(why, do=do)
        self.why = why


class TooLarge(ServeError):
    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"the body is larger than {limit_bytes} bytes", do="Send it in several appends")
        self.limit_bytes = limit_bytes


class UsageError(HeadwaterError):
    """A call that cannot be meant: wrong order, wrong combination, wrong file."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)
