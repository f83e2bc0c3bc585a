"""What a message says, whoever wrote it: what happened to which row, and where that stands at its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

Values = Mapping[str, Any]


class Unreadable(Exception):
    """A message that is not what it should be; the capture says where it stands."""


class NotHeld(Unreadable):
    """A message that tells only a part of a row, and the rest is not there to be put back."""


class Act(Enum):
    PUT = "put"
    """The row is now this."""
    PATCH = "patch"
    """Some fields of the row are now these."""
    REMOVE = "remove"
    TOMBSTONE = "tombstone"
    """After a delete, for Kafka's compaction."""
    TRUNCATE = "truncate"
    NOTE = "note"
    """A message that an application put into the database's log."""
    NOTHING = "nothing"
    """Nothing about rows: a heartbeat, the bounds of a transaction, DDL."""


@dataclass(frozen=True)
class Told:
    """What the schema beside a message says of a column: Kafka Connect's type, and the name of what it means."""

    type: str = ""
    name: str = ""
    scale: int = 0
    items: Told | None = None


@dataclass(frozen=True)
class Place:
    """Where a change stands at its source. Places of one history compare; those of different ones do not."""

    history: str
    at: tuple[int | str, ...]
    time_ms: int
    """When it was committed."""


@dataclass(frozen=True)
class Patch:
    """How MongoDB tells an update without the document: paths with dots."""

    updated: Values
    removed: tuple[str, ...] = ()
    truncated: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Message:
    act: Act
    names: tuple[str, ...] = ()
    """What its table may be called, the longest name first; a tombstone does not say."""
    key: Values | None = None
    old: Values | None = None
    row: Values | None = None
    types: Mapping[str, Told] = field(default_factory=dict)
    patch: Patch | None = None
    place: Place | None = None
    documents: bool = False
    """Its values are MongoDB's."""


_EXACT = json.JSONDecoder(parse_float=Decimal)


def parsed(text: str | bytes | None) -> Any:
    """JSON; numbers with a point stay exact."""
    if text is None:
        return None
    try:
        return _EXACT.decode(text.decode() if isinstance(text, bytes) else text)
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from None


def names_of(*parts: str | None) -> tuple[str, ...]:
    """`shop`, `public`, `people`: shop.public.people, public.people, people."""
    told = [part for part in parts if part]
    return tuple(".".join(told[first:]) for first in range(len(told)))
