"""Where to serve: `HOST:PORT`, or `https://HOST:PORT?certificate=FILE&key=FILE` with files in PEM form.

`?name=NAME`, any number of times, says by which other names the server is known: see `serve/http/hosts.py`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote

from headwater.errors import UsageError

NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class Tls:
    certificate: Path
    """With those that vouch for it."""
    key: Path


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    tls: Tls | None = None
    names: tuple[str, ...] = ()
    """By which it is known besides `localhost` and its address."""

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        tls = None
        place, _, query = text.partition("?")
        given = parse_qs(query, keep_blank_values=True)
        names = tuple(name.lower() for name in given.pop("name", []))
        if place.startswith("https://"):
            place = place.removeprefix("https://").rstrip("/")
            if set(given) != {"certificate", "key"}:
                raise UsageError(what="https needs a certificate and its key", do="Give --certificate and --key")
            tls = Tls(Path(given["certificate"][0]), Path(given["key"][0]))
        elif given:
            raise UsageError(what=f"{text!r} says {', '.join(given)}", do="After HOST:PORT may come ?name=NAME")
        if wrong := [name for name in names if not NAME.fullmatch(name)]:
            raise UsageError(
                what=f"{wrong[0]!r} is not the name of a host", do="Give it without a port: ?name=shop.test"
            )
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise UsageError(what=f"{place!r} is not HOST:PORT", do="Use e.g. 127.0.0.1:8080")
        host = "127.0.0.1" if host == "localhost" else host.strip("[]")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise UsageError(
                what=f"{host} is not a loopback address, nor an address at all",
                do="Give an address of this machine, such as 127.0.0.1 or 0.0.0.0",
            ) from None
        return cls(host, int(port), tls, names)


def with_tls(address: str, certificate: Path | None, key: Path | None) -> str:
    """The address as text, with the files that commands were given."""
    if certificate is None and key is None:
        return address
    if certificate is None or key is None:
        raise UsageError(what="a certificate and its key go together", do="Give both --certificate and --key")
    place, mark, names = address.partition("?")
    return f"https://{place}?certificate={quote(str(certificate))}&key={quote(str(key))}{'&' if mark else ''}{names}"
