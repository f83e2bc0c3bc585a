"""Changes of a view sent to an address, as Standard Webhooks 1.0.0 has it (www.standardwebhooks.com).

    POST, JSON: {"type": "by_page.changed", "timestamp": "2026-01-02T03:04:05Z", "data": {"view", "version", "number",
                 "covers", "restart", "part", "changes": [{"weight": -1, "row": {...}}, ...]}}
    webhook-id           the same each time that a message is sent
    webhook-timestamp    seconds, when it was sent
    webhook-signature    v1,BASE64 of HMAC-SHA256 over "{id}.{timestamp}.{body}"; one a secret, so that they can change

2xx: taken. 410: the endpoint is disabled. 429, 502, 504: nothing is sent for a while (Retry-After). All else, redirects
too, is a failure: the message is tried again on the schedule of the outbox.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets as random_bytes
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult

from headwater.errors import AddressRefused, BadStore
from headwater.serve.store import Mark, Served
from headwater.serve.stores.addresses import Allowed, checked_url, resolve
from headwater.serve.stores.net import Net
from headwater.serve.stores.outbox import SECOND, Answer
from headwater.serve.stores.plainvalues import told

TIMEOUT_S = 20.0
BODY_BYTES = 18_000
"""About how much a message holds; one row that is larger goes alone."""
PREFIX = "whsec_"
GONE, THROTTLED = 410, (429, 502, 504)


def new_secret() -> str:
    """A secret for one endpoint; its receiver needs it to check signatures."""
    return PREFIX + base64.b64encode(random_bytes.token_bytes(32)).decode()


def key_of(secret: str, *, store: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        do = "Make one with headwater.stores.new_secret()"
        raise BadStore(store=store, why="its secret is not whsec_ and 24 to 64 bytes in base64", do=do)
    return key


def signature(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key, content, hashlib.sha256).digest() for key in keys)
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


class WebhookMessenger:
    def __init__(
        self,
        url: str,
        secrets: Sequence[str],
        *,
        name: str,
        allowed: Allowed,
        timeout_s: float = TIMEOUT_S,
        ca_file: str | None = None,
    ) -> None:
        self._parts = checked_url(url, allowed)
        self._keys = [key_of(secret, store=name) for secret in secrets]
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=ca_file) if self._parts.scheme == "https" else None

    def compose(self, served: Served, some: Net, mark: Mark, *, restart: bool) -> Iterator[bytes]:
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        about = {"view": served.view, "version": served.version, "number": mark.number, "covers": str(mark.covers)}
        for part, changes in enumerate(_in_parts(some)):
            data = {**about, "restart": restart and part == 0, "part": part, "changes": changes}
            yield json.dumps({"type": f"{served.view}.changed", "timestamp": at, "data": data}).encode()

    def send(self, message_id: str, body: bytes, now_us: int) -> Answer:
        timestamp = now_us // SECOND
        headers = {
            "content-type": "application/json",
            "user-agent": "headwater",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._keys, message_id, timestamp, body),
        }
        try:
            status, after = self._post(body, headers)
        except AddressRefused as refused:
            return Answer("failed", refused.what)
        except (OSError, http.client.HTTPException) as error:
            return Answer("failed", f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no answer'}")
        if 200 <= status < 300:
            return Answer("sent", str(status))
        if status == GONE:
            return Answer("gone", "the receiver answered 410, gone")
        if status in THROTTLED:
            return Answer("throttled", f"the receiver answered {status}", _seconds(after, now_us))
        return Answer("failed", f"the receiver answered {status}", _seconds(after, now_us))

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
        """Status and Retry-After. The connection goes to the address that was checked, under the name given; no
        redirect is followed, no proxy asked."""
        parts = self._parts
        host = str(parts.hostname)
        port = parts.port or (443 if self._tls else 80)
        opened = socket.create_connection((resolve(host, port, self._allowed), port), timeout=self._timeout_s)
        late = threading.Timer(self._timeout_s, opened.close)  # a receiver that answers one byte at a time
        late.daemon = True
        late.start()
        try:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
            connection.sock = self._tls.wrap_socket(opened, server_hostname=host) if self._tls else opened
            late.cancel()
            late = threading.Timer(self._timeout_s, lambda: _cut(connection))
            late.daemon = True
            late.start()
            connection.request("POST", _target(parts), body, {**headers, "host": _host(parts)})
            answer = connection.getresponse()
            return answer.status, answer.getheader("retry-after")
        finally:
            late.cancel()
            connection.close()
            opened.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError):  # it is closed already
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _host(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
    return f"{host}:{parts.port}" if parts.port else host


def _seconds(after: str | None, now_us: int) -> float | None:
    """Retry-After: seconds, or a date."""
    if after is None:
        return None
    if after.strip().isdigit():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - now_us / SECOND)
    except ValueError:
        return None


def _in_parts(some: Net) -> Iterator[list[dict[str, object]]]:
    weighted = [(-times, row) for times, row in zip(some.gone_times, told(some.gone), strict=True)]
    weighted += list(zip(some.here_times, told(some.here), strict=True))
    part: list[dict[str, object]] = []
    size = 0
    for weight, row in weighted:
        length = len(json.dumps(row)) + 30
        if part and size + length > BODY_BYTES:
            yield part
            part, size = [], 0
        part.append({"weight": weight, "row": row})
        size += length
    if part:
        yield part
