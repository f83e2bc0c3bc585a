"""What a route needs, declared at the route: one dependency, which also finds out who asks.

    @router.get("/topics/{topic}", dependencies=[needs("read", "topic")])

The name of the resource is the path parameter of that kind. A test walks all routes and finds the declaration at each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Depends, Request

from headwater.errors import Forged, Unauthenticated
from headwater.serve.access import Access, Principal
from headwater.serve.access.rules import ANYONE
from headwater.serve.access.sessions import COOKIE, CSRF_HEADER, Sessions

SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Permission:
    """`kind:name` with the name from the path, or fixed; without a kind, anybody who is known."""

    operation: str
    kind: str = ""
    name: str = ""

    def resource(self, request: Request) -> str:
        return f"{self.kind}:{self.name or request.path_params[self.kind]}"


class Needs:
    """A route's declaration: all of the permissions, or nothing at all (`public`)."""

    def __init__(self, *permissions: Permission, public: bool = False) -> None:
        self.permissions = permissions
        self.public = public

    async def __call__(self, request: Request) -> Principal:
        guard: Guard = request.app.state.guard
        if self.public:
            return ANYONE
        principal = guard.who(request)
        for each in self.permissions:
            if each.kind:
                guard.check(principal, each.operation, each.resource(request))
        request.state.principal = principal
        return principal


class Guard:
    def __init__(self, access: Access | None) -> None:
        self._access = access
        self.sessions = Sessions()

    @property
    def on(self) -> bool:
        return self._access is not None and self._access.on

    @property
    def access(self) -> Access:
        if self._access is None:
            raise Unauthenticated(why="this server has no users")
        return self._access

    def who(self, request: Request) -> Principal:
        """A token counts before a cookie; a cookie alone changes nothing unless one of our pages sent it."""
        if not self.on:
            if request.method not in SAFE:
                refuse_other_sites(request)
            return ANYONE
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.access.by_token(secret.strip())
        cookie = request.cookies.get(COOKIE)
        if cookie is None:
            raise Unauthenticated(why="it has neither a token nor a session")
        session = self.sessions.of(cookie)
        if not self.access.has_user(session.principal.name):
            raise Unauthenticated(why="the session is over")
        if request.method not in SAFE:
            refuse_other_sites(request)
            if not session.is_csrf(request.headers.get(CSRF_HEADER, "")):
                raise Forged(why="its X-CSRF-Token is not the session's")
        return session.principal

    def may(self, principal: Principal, operation: str, resource: str) -> bool:
        return not self.on or self.access.may(principal, operation, resource)

    def check(self, principal: Principal, operation: str, resource: str) -> None:
        if self.on:
            self.access.check(principal, operation, resource)


def needs(operation: str, kind: str, name: str = "") -> Any:
    return Depends(Needs(Permission(operation, kind, name)))


def needs_all(*permissions: tuple[str, str]) -> Any:
    return Depends(Needs(*(Permission(operation, kind) for operation, kind in permissions)))


def needs_somebody() -> Any:
    """Anybody who is known; what is answered is cut down to what they may read."""
    return Depends(Needs())


def public() -> Any:
    return Depends(Needs(public=True))


def refuse_other_sites(request: Request) -> None:
    """A browser says from where a request comes; other clients say nothing, and have no cookies to abuse."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise Forged(why=f"the browser says it comes from elsewhere ({site[:20]})")
    origin = request.headers.get("origin")
    if site is None and origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Forged(why="its Origin is another site's")
