"""Datagrams, received as fast as they come and held in memory until they are taken; what does not fit is dropped.

UDP cannot block: a sender does not learn that we are slow. What the kernel's own buffer could not hold is counted too,
as the kernel tells it with the next datagram.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
from collections import deque
from urllib.parse import parse_qs, urlsplit

from headwater.capture.feeds.spec import StatsdSettings
from headwater.errors import BadCapture, SourceLost, SourceRefused

SO_RXQ_OVFL = 40
"""Linux tells, with each datagram, how many it has dropped on this socket so far."""
KERNEL_BYTES = 8 * 1024 * 1024
LARGEST = 65_536
TAKE_BYTES = 512 * 1024
"""What becomes one append: as metrics, they take many times as much."""
LOOK_S = 0.1


class Datagrams:
    """A thread that receives, from `start` to `stop`. Everything else may be called from any thread."""

    def __init__(self, bound: socket.socket, settings: StatsdSettings, *, url: str) -> None:
        self._socket = bound
        self._url = url
        self._drop_oldest = settings.when_slow == "drop_oldest"
        self._most = settings.buffer_bytes
        self._held: deque[bytes] = deque()
        self._come = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="datagrams", daemon=True)
        self._failure: OSError | None = None
        self.held_bytes = 0
        self.received = 0
        self.dropped = 0
        self.dropped_lines = 0
        self.lost = 0
        """Datagrams that the kernel has dropped."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What has come is still there to be taken."""
        self._ended.set()
        self._thread.join()

    def take(self, *, timeout_s: float) -> list[bytes]:
        """The oldest that are held, at most `TAKE_BYTES` of them, as soon as there is one; none when the time is up."""
        with self._come:
            self._come.wait_for(lambda: self._held or self._failure, timeout_s)
            if self._failure is not None and not self._held:
                raise SourceLost(source=self._url, why=str(self._failure))
            taken: list[bytes] = []
            size = 0
            while self._held and (not taken or size + len(self._held[0]) <= TAKE_BYTES):
                taken.append(self._held.popleft())
                size += len(taken[-1])
            self.held_bytes -= size
            return taken

    def _receive(self) -> None:
        self._socket.settimeout(LOOK_S)
        space = socket.CMSG_SPACE(4)
        while not self._ended.is_set():
            try:
                data, told, _, _ = self._socket.recvmsg(LARGEST, space)
            except TimeoutError:
                continue
            except OSError as error:
                with self._come:
                    self._failure = error
                    self._come.notify()
                return
            for level, kind, value in told:
                if (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL):
                    self.lost = struct.unpack("I", value[:4])[0]
            with self._come:
                self.received += 1
                self._keep(data)
                self._come.notify()

    def _keep(self, data: bytes) -> None:
        while self.held_bytes + len(data) > self._most:
            dropped = self._held.popleft() if self._drop_oldest and self._held else data
            self.dropped += 1
            self.dropped_lines += lines_in(dropped)
            if dropped is data:
                return
            self.held_bytes -= len(dropped)
        self._held.append(data)
        self.held_bytes += len(data)


def lines_in(datagram: bytes) -> int:
    return sum(1 for line in datagram.split(b"\n") if line.strip())


def bind(url: str, *, anybody: bool) -> socket.socket:
    """The socket of `statsd://HOST:PORT`, or of a multicast group: `statsd://239.1.2.3:8125?interface=192.0.2.7`."""
    host, port, interface = _address(url)
    _refuse_strangers(url, interface if host.is_multicast else host, anybody=anybody)
    family = socket.AF_INET6 if host.version == 6 else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        made.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        if host.is_multicast:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # others may listen to the group as well
        made.bind((str(host), port))
        if host.is_multicast:
            joined = host.packed + interface.packed
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
    except OSError as error:
        made.close()
        statement = f"ss -ulpn 'sport = :{port}'   # to see who listens there"
        raise SourceRefused(source=url, why=f"cannot listen: {error.strerror}", statement=statement) from None
    return made


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(url: str) -> tuple[Address, int, Address]:
    try:
        parts = urlsplit(url)
        host = ipaddress.ip_address("127.0.0.1" if parts.hostname == "localhost" else parts.hostname or "")
        asked = parse_qs(parts.query, strict_parsing=bool(parts.query))
        interface = ipaddress.ip_address(asked.pop("interface", ["0.0.0.0"])[0])
        if parts.port is None or asked or parts.path or (host.is_multicast and 6 in (host.version, interface.version)):
            raise ValueError
    except ValueError:
        raise BadCapture(
            what=f"{url!r} is no address to listen on",
            do="Give statsd://127.0.0.1:8125, or a group: statsd://239.1.2.3:8125?interface=127.0.0.1 (IPv4)",
        ) from None
    return host, parts.port, interface


def _refuse_strangers(url: str, reachable_by: Address, *, anybody: bool) -> None:
    if not reachable_by.is_loopback and not anybody:
        raise BadCapture(
            what=f"{url}: other machines can send there, and UDP does not say who sends",
            do="Listen on 127.0.0.1 (a group: with ?interface=127.0.0.1), or say StatsdSettings(anybody=True)",
        )
