"""To which addresses something may be sent that a user named: not into the network that we stand in, unless allowed.

A name is resolved once, every address it has is checked, and the connection goes to one that was checked, not to the
name again: one that answers differently the second time gains nothing. If it does not resolve, nothing is sent.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from headwater.errors import AddressRefused

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
INNER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "::/128",
        "::1/128",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
    )
)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class Allowed:
    """What of the usual is lifted: addresses inside of the network, and http without encryption."""

    private: bool = False
    http: bool = False


def checked_url(url: str, allowed: Allowed) -> SplitResult:
    """The parts of an address that may be sent to, as far as can be told without resolving its name."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.hostname or ''}"
    if parts.scheme != "https" and not (parts.scheme == "http" and allowed.http):
        raise AddressRefused(address=shown, why="it is not https", do="Use https, or allow http where the way is safe")
    if not parts.hostname:
        raise AddressRefused(address=shown, why="it names no host", do="Write https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused(
            address=shown, why="it has a user or password in it", do="Leave it out: receivers check the signature"
        )
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return parts
    _refuse_inner(parts.hostname, [address], allowed)
    return parts


def resolve(host: str, port: int, allowed: Allowed) -> str:
    """One address of the host, after all it has were checked; OSError if it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = [str(entry[4][0]) for entry in found]
    _refuse_inner(host, [ipaddress.ip_address(text.partition("%")[0]) for text in texts], allowed)
    return texts[0]


def _refuse_inner(host: str, addresses: list[IPAddress], allowed: Allowed) -> None:
    if allowed.private:
        return
    for address in addresses:
        if is_inner(address):
            raise AddressRefused(
                address=host,
                why="it is an address inside of a network",
                do="Name a host that is reachable from outside, or allow private addresses",
            )


def is_inner(address: IPAddress) -> bool:
    """Also in disguise: an IPv4 address inside of an IPv6 one counts as what it is."""
    if isinstance(address, ipaddress.IPv6Address):
        hidden = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in NAT64 or address.packed[:12] == bytes(12):
            hidden.append(ipaddress.IPv4Address(address.packed[12:]))
        if any(each is not None and is_inner(each) for each in hidden):
            return True
    return not address.is_global or address.is_multicast or any(address in inner for inner in INNER)
