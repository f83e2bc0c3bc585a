"""What proves who somebody is: random tokens, kept as hashes; passwords of people, by argon2id."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from headwater.errors import UsageError

PREFIX = "hw_"
LEAST_LETTERS = 10


@dataclass(frozen=True)
class Token:
    """The secret itself is shown once, when it is made: 256 random bits, so one round of SHA-256 hides it."""

    id: str
    principal: str
    digest: str
    made_at: int
    expires_at: int | None
    """In µs; None: never."""

    def proves(self, secret: str, now: int) -> bool:
        same = hmac.compare_digest(self.digest, _digest(secret))
        return same and not self.expired(now)

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True)
class User:
    name: str
    digest: str
    made_at: int


def new_token(principal: str, *, now: int, expires_at: int | None) -> tuple[Token, str]:
    """A token and its secret, `hw_<id>_<random>`: the id says which one it is, also in a list."""
    name = secrets.token_hex(6)
    secret = f"{PREFIX}{name}_{secrets.token_urlsafe(32)}"
    return Token(name, principal, _digest(secret), now, expires_at), secret


def token_id(secret: str) -> str | None:
    parts = secret.split("_", 2)
    return parts[1] if len(parts) == 3 and f"{parts[0]}_" == PREFIX else None


def hashed(password: str) -> str:
    if len(password) < LEAST_LETTERS:
        raise UsageError(
            what=f"the password has fewer than {LEAST_LETTERS} letters", do="Choose a longer one; a sentence will do"
        )
    return _hasher().hash(password)


def is_password(digest: str | None, password: str) -> bool:
    """Without a digest (no such user) it takes as long as with one, and is false."""
    try:
        return _hasher().verify(digest or _nobody(), password) and digest is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hasher() -> PasswordHasher:
    return PasswordHasher()


@cache
def _nobody() -> str:
    return _hasher().hash(secrets.token_urlsafe(16))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
