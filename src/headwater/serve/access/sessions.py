"""Sessions of people who logged in: kept in memory, so that a restart of the server ends them all.

A session is a random secret in a cookie that scripts cannot read; its CSRF token is another, which our own pages get in
the answer to a login and send along with every change. Of both only hashes or the session itself are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass

from headwater.errors import TooMany, Unauthenticated
from headwater.serve.access.rules import Principal

COOKIE = "headwater_session"
CSRF_HEADER = "x-csrf-token"
LASTS_S = 12 * 3600.0
MOST = 10_000
TRIES, TRIES_S = 10, 60.0
"""So many wrong passwords for one name within so many seconds; then nobody is let in under it for a while."""


@dataclass(frozen=True)
class Session:
    principal: Principal
    csrf: str
    until: float

    def is_csrf(self, given: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), given.encode())


class Sessions:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_digest: dict[str, Session] = {}
        self._wrong: dict[str, list[float]] = {}

    def begin(self, principal: Principal) -> tuple[str, Session]:
        """The secret of the cookie, and the session."""
        secret = secrets.token_urlsafe(32)
        session = Session(principal, secrets.token_urlsafe(32), time.monotonic() + LASTS_S)
        with self._lock:
            self._by_digest = {key: each for key, each in self._by_digest.items() if each.until > time.monotonic()}
            if len(self._by_digest) >= MOST:
                raise TooMany(what="sessions", limit=MOST)
            self._by_digest[_digest(secret)] = session
        return secret, session

    def of(self, secret: str) -> Session:
        session = self._by_digest.get(_digest(secret))
        if session is None or session.until <= time.monotonic():
            raise Unauthenticated(why="the session is over")
        return session

    def end(self, secret: str) -> None:
        with self._lock:
            self._by_digest.pop(_digest(secret), None)

    def may_try(self, name: str) -> None:
        """Call before a password is looked at."""
        with self._lock:
            since = time.monotonic() - TRIES_S
            self._wrong = {who: late for who, at in self._wrong.items() if (late := [t for t in at if t > since])}
            if len(self._wrong.get(name, ())) >= TRIES:
                raise TooMany(what="wrong passwords for this name within a minute", limit=TRIES)

    def was_wrong(self, name: str) -> None:
        with self._lock:
            self._wrong.setdefault(name, []).append(time.monotonic())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
