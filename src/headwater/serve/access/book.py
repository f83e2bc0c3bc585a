"""The file `access.json` in the data folder: tokens and passwords as hashes, and rules. Only its owner can read it.

    {"format": 1, "tokens": [{id, principal, digest, made_at, expires_at}], "users": [{name, digest, made_at}],
     "rules": [{principal, effect, operation, resource}]}

It is replaced whole, by a rename, under a lock: commands change it while a server runs, and the server sees it with the
next request. Once it is there, nothing is allowed but by its rules, also when the last token is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.clock import Clock, system_clock
from headwater.errors import Corrupt, Forbidden, PrincipalNotFound, Unauthenticated, UsageError
from headwater.log.spec import NAME
from headwater.serve.access.credentials import Token, User, hashed, is_password, new_token, token_id
from headwater.serve.access.rules import Principal, Rule, allowed

FILE = "access.json"
FORMAT = 1


@dataclass(frozen=True)
class Book:
    tokens: tuple[Token, ...] = ()
    users: tuple[User, ...] = ()
    rules: tuple[Rule, ...] = ()
    by_id: dict[str, Token] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Book:
        tokens = tuple(Token(**each) for each in told["tokens"])
        users = tuple(User(**each) for each in told["users"])
        rules = tuple(Rule(**each) for each in told["rules"])
        return cls(tokens, users, rules, {token.id: token for token in tokens})

    def told(self) -> str:
        parts = {name: [asdict(each) for each in getattr(self, name)] for name in ("tokens", "users", "rules")}
        return json.dumps({"format": FORMAT, **parts}, indent=1)

    @property
    def principals(self) -> set[str]:
        return {token.principal for token in self.tokens} | {user.name for user in self.users}

    def without_orphans(self) -> Book:
        """Rules go with the last token or user that they are about."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.principal in self.principals))


class Access:
    """Every method may be called from any thread; `always`: as if the file were there, for addresses all can reach."""

    def __init__(self, folder: Path, *, always: bool = False, clock: Clock = system_clock) -> None:
        self._path = folder / FILE
        self._clock = clock
        self._on = always
        self._read: tuple[tuple[int, int, int], Book] | None = None

    # --- asked by the server ---

    @property
    def on(self) -> bool:
        """Whether a request must say who it is from. Once on, it stays on for as long as the process lives."""
        self._on = self._on or self._path.exists()
        return self._on

    @property
    def anybody(self) -> bool:
        """Whether there is a token or a user at all."""
        return bool(self.book().principals)

    def demand(self) -> None:
        self._on = True

    def by_token(self, secret: str) -> Principal:
        token = self.book().by_id.get(token_id(secret) or "")
        if token is None or not token.proves(secret, self._clock()):
            raise Unauthenticated(why="the token is unknown, revoked or expired")
        return Principal(token.principal)

    def by_password(self, name: str, password: str) -> Principal:
        """Takes some 50 ms on purpose, whether or not there is such a user."""
        digest = next((user.digest for user in self.book().users if user.name == name), None)
        if not is_password(digest, password):
            raise Unauthenticated(why="the name or the password is wrong")
        return Principal(name)

    def has_user(self, name: str) -> bool:
        return any(user.name == name for user in self.book().users)

    def may(self, principal: Principal, operation: str, resource: str) -> bool:
        return allowed(self.book().rules, principal.name, operation, resource)

    def check(self, principal: Principal, operation: str, resource: str) -> None:
        if not self.may(principal, operation, resource):
            raise Forbidden(principal=principal.name, operation=operation, resource=resource)

    def book(self) -> Book:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return Book()
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read is None or self._read[0] != version:
            try:
                self._read = (version, Book.of(json.loads(self._path.read_text())))
            except (ValueError, KeyError, TypeError) as error:
                raise Corrupt(what="the file of tokens and rules", file=str(self._path)) from error
        return self._read[1]

    # --- changed by commands ---

    def add_token(self, principal: str, rules: Sequence[Rule], *, lasts_us: int | None = None) -> tuple[Token, str]:
        """A new token, and its secret, which is kept nowhere."""
        _named(principal)
        now = self._clock()
        token, secret = new_token(principal, now=now, expires_at=None if lasts_us is None else now + lasts_us)
        self._change(lambda book: replace(book, tokens=(*book.tokens, token), rules=_with(book.rules, rules)))
        return token, secret

    def revoke(self, id_: str) -> Token:
        token = self.book().by_id.get(id_)
        if token is None:
            raise PrincipalNotFound(kind="token", name=id_, known=", ".join(self.book().by_id) or "none")
        self._change(lambda book: replace(book, tokens=tuple(each for each in book.tokens if each.id != id_)))
        return token

    def add_user(self, name: str, password: str, rules: Sequence[Rule]) -> User:
        """A new user, or a new password of one who is there."""
        _named(name)
        user = User(name, hashed(password), self._clock())

        def changed(book: Book) -> Book:
            others = tuple(each for each in book.users if each.name != name)
            return replace(book, users=(*others, user), rules=_with(book.rules, rules))

        self._change(changed)
        return user

    def remove_user(self, name: str) -> None:
        if not self.has_user(name):
            known = ", ".join(user.name for user in self.book().users) or "none"
            raise PrincipalNotFound(kind="user", name=name, known=known)
        self._change(lambda book: replace(book, users=tuple(each for each in book.users if each.name != name)))

    def _change(self, change: Callable[[Book], Book]) -> None:
        with self._locked():
            told = change(self.book()).without_orphans().told()
            draft = self._path.with_suffix(".new")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(told)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(os.open(self._path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _with(rules: tuple[Rule, ...], more: Sequence[Rule]) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys((*rules, *more)))


def _named(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(what=f"{name!r} cannot name anybody", do="Use letters, digits, '_', '-' and '.'")
