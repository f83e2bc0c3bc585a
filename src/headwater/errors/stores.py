"""What stands between a view and where it is to be served from. No message shows a password or signing secret."""

from __future__ import annotations

from headwater.errors.serve import ServeError


class BadStore(ServeError):
    """A store that is declared in a way that cannot be, or a place that does not fit the view: somebody must act."""

    def __init__(self, *, store: str, why: str, do: str) -> None:
        super().__init__(f"{store}: {why}", do=do)
        self.store, self.why = store, why


class StoreFailed(ServeError):
    """The place does not answer, or did not take the rows. They are safe in the log."""

    def __init__(self, *, store: str, why: str, do: str = "") -> None:
        super().__init__(f"{store}: {why}", do=do or "Nothing is lost: it is tried again, and goes on where it was")
        self.store, self.why = store, why


class StoreMoved(ServeError):
    """Somebody else applied to the same place, or it was put back to an earlier state."""

    def __init__(self, *, store: str, expected: int, found: int) -> None:
        super().__init__(
            f"{store} holds append {found}, not {expected} as this process left it",
            do="Nothing was applied; do two apps serve to the same place?",
        )
        self.store, self.expected, self.found = store, expected, found


class StoreAstray(ServeError):
    """A store that is ahead of its log, or of another one: the log was restored, and the store was not."""

    def __init__(self, *, view: str, why: str) -> None:
        super().__init__(
            f"the store of view {view!r} is not one of this log: {why}",
            do="Was the log restored? Run the app (`headwater run FILE`): it fills the store anew, from the log",
        )
        self.view, self.why = view, why


class AddressRefused(ServeError):
    """An address to which nothing is sent: it lies inside of a network, or could."""

    def __init__(self, *, address: str, why: str, do: str) -> None:
        super().__init__(f"nothing is sent to {address}: {why}", do=do)
        self.address, self.why = address, why


class StoreTaken(ServeError):
    """Another version of the view is served to the same place by now: going on would undo what it does."""

    def __init__(self, *, store: str, by: str) -> None:
        super().__init__(
            f"{store} holds the rows of {by or 'nobody'} by now",
            do="Was the view switched to another version? Then start this app again, or serve it to another place",
        )
        self.store, self.by = store, by
