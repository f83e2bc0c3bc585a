"""MariaDB's names of transactions, domain-server-number, the same on all servers of a replication: with them, what was
captured from one server is found again in the binlog of another that has taken its place.

Numbers count up, so the number of the last transaction rests in the position; only what else there is, which server and
which other domains, rests in the state, and is written when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.capture.mysql.wire import HEADER


class Gtids:
    """The last transaction of each domain."""

    def __init__(self, known: Mapping[int, tuple[int, int]] | None = None, newest: int = 0) -> None:
        self._known = dict(known or {})
        self._newest = newest

    @classmethod
    def parse(cls, text: str) -> Gtids:
        """`0-1-270,1-1-9`, as MariaDB writes it."""
        names = [tuple(int(part) for part in each.split("-")) for each in text.split(",") if each]
        return cls({domain: (server, number) for domain, server, number in names}, names[-1][0] if names else 0)

    @classmethod
    def from_json(cls, told: Mapping[str, Any] | None, number: int) -> Gtids:
        """By the state, and the number in the position."""
        if told is None:
            return cls()
        known = {int(domain): (int(server), int(last)) for domain, server, last in told["others"]}
        domain, server = told["newest"]
        return cls({**known, domain: (server, number)}, domain)

    def as_json(self) -> dict[str, Any] | None:
        if not self._known:
            return None
        others = [[domain, *last] for domain, last in sorted(self._known.items()) if domain != self._newest]
        return {"newest": [self._newest, self._known[self._newest][0]], "others": others}

    @property
    def number(self) -> int:
        return self._known[self._newest][1] if self._known else 0

    @property
    def text(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._known.items()))

    def after(self, event: bytes) -> Gtids:
        """With the transaction that this event begins: uint64 number, uint32 domain; the server is in the header."""
        server = int.from_bytes(event[6:10], "little")
        number, domain = (
            int.from_bytes(event[at : at + size], "little") for at, size in ((HEADER, 8), (HEADER + 8, 4))
        )
        return Gtids({**self._known, domain: (server, number)}, domain)
