"""Where to serve: `HOST:PORT`, or `https://HOST:PORT?certificate=FILE&key=FILE` with files in PEM form."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from headwater.errors import UsageError


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

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        tls = None
        place = text
        if text.startswith("https://"):
            url = urlsplit(text)
            place, files = url.netloc, parse_qs(url.query)
            if set(files) != {"certificate", "key"}:
                raise UsageError(what="https needs a certificate and its key", do="Give --certificate and --key")
            tls = Tls(Path(files["certificate"][0]), Path(files["key"][0]))
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
        return cls(host, int(port), tls)


def with_tls(address: str, certificate: Path | None, key: Path | None) -> str:
    """The address as text, with the files that commands were given."""
    if certificate is None and key is None:
        return address
    if certificate is None or key is None:
        raise UsageError(what="a certificate and its key go together", do="Give both --certificate and --key")
    return f"https://{address}?certificate={quote(str(certificate))}&key={quote(str(key))}"
