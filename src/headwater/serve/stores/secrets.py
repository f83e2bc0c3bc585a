"""Addresses of stores, as they may be shown: without passwords, tokens and whatever else only its owner may know."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

HIDDEN = "***"
SECRET = ("password", "passwd", "token", "secret", "key", "sslpassword", "sslkey")


def shown(url: str) -> str:
    """Scheme, host and path: neither who, nor by which password or option."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def without(url: str, text: str) -> str:
    """The text of somebody else's error, with everything taken out of it that is secret in the address."""
    parts = urlsplit(url)
    secrets = [url, parts.netloc if "@" in parts.netloc else "", parts.password or "", parts.fragment]
    secrets += [value for name, value in parse_qsl(parts.query) if name.lower() in SECRET]
    for secret in sorted({each for one in secrets for each in (one, unquote(one)) if each}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
