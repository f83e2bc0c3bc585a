"""Standard Webhooks, received: that a body comes from somebody who has the secret, and was sent just now.

Signed is `<webhook-id>.<webhook-timestamp>.<body>`. `webhook-signature` has any number of signatures, separated by
spaces: `v1,<base64>` is HMAC-SHA256 with a shared secret (`whsec_...`), `v1a,<base64>` is ed25519, checked with the
sender's public key (`whpk_...`). One that fits one of our secrets is enough: so either side may change its secret
while both are known. Signatures are compared in constant time. The timestamp is part of what is signed: an old message
cannot be sent again later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.errors import BadCapture, BadSignature

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SHARED, PUBLIC, PRIVATE = "whsec_", "whpk_", "whsk_"
TOLERANCE_S = 300.0
SHARED_BYTES = range(24, 65)
PUBLIC_BYTES = 32


@dataclass(frozen=True)
class Signed:
    """What the signature covers besides the body."""

    id: str
    at_s: int


@dataclass(frozen=True)
class Secret:
    version: str
    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Secret:
        if text.startswith(PRIVATE):
            raise BadCapture(
                what="a webhook is not checked with a private key", do=f"Give the sender's {PUBLIC}... key"
            )
        public = text.startswith(PUBLIC)
        key = _decoded(text.removeprefix(PUBLIC).removeprefix(SHARED))
        if key is None or (len(key) != PUBLIC_BYTES if public else len(key) not in SHARED_BYTES):
            raise BadCapture(
                what="a webhook's secret is not one of Standard Webhooks",
                do=f"Give {SHARED} and base64 of 24 to 64 bytes, or {PUBLIC} and base64 of 32 bytes",
            )
        return cls("v1a" if public else "v1", key)

    def signed(self, content: bytes, signature: bytes) -> bool:
        if self.version == "v1":
            return hmac.compare_digest(hmac.digest(self.key, content, hashlib.sha256), signature)
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ModuleNotFoundError:
            raise BadCapture(
                what="ed25519 signatures are checked with the package 'cryptography', which is not installed",
                do="Install it: pip install 'headwater[webhooks]'",
            ) from None
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, content)
        except InvalidSignature:
            return False
        return True


def verified(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[Secret],
    *,
    clock: Clock,
    tolerance_s: float = TOLERANCE_S,
) -> Signed:
    """`headers` by their names in lower case. `BadSignature` if the body is not signed with one of the secrets."""
    for name in (ID, TIMESTAMP, SIGNATURE):
        if not headers.get(name):
            raise BadSignature(why=f"it has no header {name}")
    name, stamp = headers[ID], headers[TIMESTAMP]
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 15):
        raise BadSignature(why=f"{TIMESTAMP} is not in seconds since 1970")
    content = b".".join([name.encode(errors="replace"), stamp.encode(), body])
    for each in headers[SIGNATURE].split():
        version, _, text = each.partition(",")
        signature = _decoded(text)
        known = [secret for secret in secrets if secret.version == version]
        if signature is not None and any(secret.signed(content, signature) for secret in known):
            break
    else:
        raise BadSignature(why="none of its signatures is made with a secret that is known here")
    apart_s = clock() / 1_000_000 - int(stamp)
    if abs(apart_s) > tolerance_s:
        when = "before" if apart_s > 0 else "after"
        raise BadSignature(why=f"it was sent {abs(apart_s):.0f} s {when} now; {tolerance_s:g} s are allowed")
    return Signed(name, int(stamp))


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
