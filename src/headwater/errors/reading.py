"""What reading a view refuses: conditions, the past, cursors, cuts."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors.root import listed
from headwater.errors.serve import ServeError


class BadCondition(ServeError):
    """Rows, an order or columns asked for in a way that the view cannot answer."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


class PastGone(ServeError):
    """The state that was asked for has been summed up with later ones."""

    def __init__(self, *, view: str, as_of: str) -> None:
        super().__init__(
            f"how view {view!r} was at {as_of} is not known any more: compaction has summed up its changes until later",
            do="Ask for a later moment; the setting history_s of the view's topic says how long changes are kept",
        )
        self.view, self.as_of = view, as_of


class BadCursor(ServeError):
    def __init__(self, *, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} is not a cursor of this feed: {why}", do="Give one that the feed gave out, or start without"
        )
        self.text, self.why = text, why


class CutNotReached(ServeError):
    """No moment was found in time at which all these views stood together. Nothing is wrong with them otherwise."""

    def __init__(self, *, views: Iterable[str], behind: Iterable[str], timeout_s: float) -> None:
        views, behind = tuple(views), tuple(behind)
        super().__init__(
            f"within {timeout_s:g} s the views {listed(views)} did not all come to one and the same cut; "
            f"missing: {listed(behind)}",
            do="Ask again or with a longer timeout; is the app running?",
        )
        self.views, self.behind, self.timeout_s = views, behind, timeout_s
