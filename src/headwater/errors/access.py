"""Who may not do what, and how much is too much."""

from __future__ import annotations

from headwater.errors.serve import ServeError


class Unauthenticated(ServeError):
    """Nobody we know. The message never repeats what was given."""

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"nobody is known by this request: {why}",
            do="Send 'Authorization: Bearer TOKEN' (headwater token create), or log in",
        )
        self.why = why


class Forbidden(ServeError):
    def __init__(self, *, principal: str, operation: str, resource: str) -> None:
        super().__init__(
            f"{principal} is not allowed to {operation} {resource}",
            do=f"Let somebody who administers this log allow it: --allow '{operation} {resource}'",
        )
        self.principal, self.operation, self.resource = principal, operation, resource


class Forged(ServeError):
    """A change asked for with a session's cookie, but not by one of our own pages."""

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"a change with a session's cookie is refused: {why}",
            do="Send the session's token as X-CSRF-Token from the same origin, or use an API token",
        )
        self.why = why


class ForeignHost(ServeError):
    """Asked for under a name that is not this server's, while it takes requests from anybody."""

    def __init__(self, *, host: str) -> None:
        super().__init__(
            f"this server is not {host!r}, and without authentication it answers to its own names only",
            do="Ask for localhost; or start it with --http 'HOST:PORT?name=NAME'; or make a token",
        )
        self.host = host


class HookNotFound(ServeError):
    """The names of others are not told: who sends need not know who else does."""

    def __init__(self, *, hook: str) -> None:
        super().__init__(
            f"no webhooks {hook[:100]!r} are taken here", do="Declare them: app.webhooks(NAME, into=..., secrets=[...])"
        )
        self.hook = hook


class TooMany(ServeError):
    def __init__(self, *, what: str, limit: int) -> None:
        super().__init__(f"there are {limit} {what} already", do="Try again later; close what is not needed")
        self.what_of, self.limit = what, limit


class BadRule(ServeError):
    def __init__(self, *, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} is no rule: {why}",
            do="Write OPERATION RESOURCE, such as 'append topic:clicks', 'read view:sales_*' or '* *'",
        )
        self.text, self.why = text, why


class PrincipalNotFound(ServeError):
    def __init__(self, *, kind: str, name: str, known: str = "none") -> None:
        super().__init__(f"there is no {kind} {name!r}", do=f"Known here: {known}")
        self.kind, self.name = kind, name


class QueryRefused(ServeError):
    """A question in SQL that is not answered: it writes, reads files, names nothing known, or is wrong."""

    def __init__(self, *, why: str, do: str = "Send one SELECT over topics and views") -> None:
        super().__init__(f"this SQL is not answered: {why}", do=do)
        self.why = why


class QueryStopped(ServeError):
    """It took longer than it may."""

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(
            f"the query was stopped after {limit_s:g} s", do="Ask for less, or make it a view: views are kept ready"
        )
        self.limit_s = limit_s


class Unreachable(ServeError):
    """The server did not answer. An append has an idempotency key: repeating it is safe."""

    def __init__(self, *, url: str, why: str) -> None:
        super().__init__(f"{url} does not answer: {why}", do="Is `headwater run` or `headwater serve` running there?")
        self.url, self.why = url, why


class ServerFailed(ServeError):
    """An answer that says no more than its status."""

    def __init__(self, *, status: int, detail: str) -> None:
        super().__init__(f"the server answered {status}: {detail}", do="See the server's own messages")
        self.status, self.detail = status, detail
