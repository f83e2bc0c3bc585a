"""The one transaction in which an append happens.

    1  Large chunks are durable files already (`Disk.write`); nothing lists them yet.
    2  A newer epoch of the producer refuses the append.
    3  A sequence that was appended before returns the first answer, if it also covers the same inputs.
    4  Progress goes on exactly where the producer's last append ended; versions are the expected ones; there is room.
    5  Offsets are taken; the append and its chunks are listed. The pin that goes with it moves; also at 3.
    6  The transaction commits at synchronous=FULL. Only then is the append acknowledged.

A crash before 6 leaves nothing but files that no row lists; after 6, everything. Whatever is refused is refused before
the first change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from headwater.errors import Fenced, ProgressBroken, UsageError, VersionConflict
from headwater.log.embedded.bound import make_room
from headwater.log.embedded.pins import Row, pin_in
from headwater.log.embedded.rows import KnownTopic
from headwater.log.embedded.transaction import Transaction
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Appended, Expected, Part, Producer, Progress
from headwater.log.versions import key_bytes


@dataclass(frozen=True)
class Append:
    parts: Sequence[Part]
    topics: Mapping[str, KnownTopic]
    producer: Producer | None = None
    sequence: int | None = None
    progress: Progress | None = None
    expect: Expected | None = None
    pin: tuple[str, list[Row]] | None = None
    """Its name and its rows."""

    def __post_init__(self) -> None:
        if (self.producer is None) != (self.sequence is None):
            raise UsageError(what="a producer and a sequence go together", do="Give both or neither")


def append_in(catalog: apsw.Connection, wanted: Append, *, now: int) -> Appended:
    """An append as part of a transaction that does other things too."""
    transaction = Transaction(catalog)
    appended = append_to(transaction, wanted, now=now)
    transaction.flush()
    return appended


def append_to(transaction: Transaction, wanted: Append, *, now: int) -> Appended:
    """Steps 2 to 5. What it raises it raises before anything is gathered."""
    appended = _admit(transaction, wanted) or _listed(transaction, wanted, now=now)
    if wanted.pin is not None:
        pin_in(transaction.beside, *wanted.pin)
    return appended


def _listed(transaction: Transaction, wanted: Append, *, now: int) -> Appended:
    if wanted.expect:
        _check_versions(transaction, wanted)
    transaction.look_up(wanted.topics, wanted.parts)
    parts, dropped = make_room(transaction, wanted.parts, wanted.topics, now=now)

    number, at = transaction.next_append(now)
    ends: dict[str, dict[int, int]] = {}
    for part in parts:
        if part.rows:
            topic = wanted.topics[part.topic]
            ends.setdefault(part.topic, {})[part.partition] = transaction.add_chunk(topic, part, number, at)
            if part.keys:
                transaction.count_versions(topic, part.keys)
    position = Position.of(ends)
    producer = wanted.producer
    if producer is None:
        transaction.add_append((number, at, None, None, None, None, None, None))
        return Appended(AppendNumber(number), position, dropped=dropped)
    progress = (str(wanted.progress.start), str(wanted.progress.end)) if wanted.progress else (None, None)
    transaction.add_append((number, at, str(position), producer.name, producer.epoch, wanted.sequence, *progress))
    transaction.beside.execute(
        "INSERT INTO producers(name, epoch, last_append) VALUES (?, ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET epoch = excluded.epoch, last_append = excluded.last_append",
        (producer.name, producer.epoch, number),
    )
    return Appended(AppendNumber(number), position, dropped=dropped)


def _check_versions(transaction: Transaction, wanted: Append) -> None:
    assert wanted.expect is not None
    for name, keys in wanted.expect.items():
        topic = wanted.topics[name]
        if not topic.spec.versioned:
            raise UsageError(what=f"topic {name!r} keeps no versions", do="Make it with versioned=True")
        for key, expected in keys.items():
            found = transaction.version_of(topic, key_bytes(key))
            if found != expected:
                raise VersionConflict(topic=name, key=repr(key), expected=expected, found=found)


def _admit(transaction: Transaction, wanted: Append) -> Appended | None:
    """Steps 2 to 4: raise, or return the answer of an earlier append, or None for one that is new."""
    producer, sequence, progress = wanted.producer, wanted.sequence, wanted.progress
    if producer is None or sequence is None:
        return None
    catalog = transaction.beside

    def broken(why: str) -> ProgressBroken:
        return ProgressBroken(producer=producer.name, sequence=sequence, why=why)

    known: Any = catalog.execute("SELECT epoch FROM producers WHERE name = ?", (producer.name,)).fetchone()
    if known is not None and known[0] > producer.epoch:
        raise Fenced(producer=producer.name, epoch=producer.epoch, current=known[0])

    columns = "number, position, sequence, progress_start, progress_end FROM appends"
    first: Any = catalog.execute(
        f"SELECT {columns} WHERE producer = ? AND sequence = ?", (producer.name, sequence)
    ).fetchone()
    if first is not None:
        if progress is not None and (first[3], first[4]) != (str(progress.start), str(progress.end)):
            raise broken(
                f"appended before for inputs {first[3]} to {first[4]}, now for {progress.start} to {progress.end}"
            )
        return Appended(AppendNumber(first[0]), Position.parse(first[1]), repeated=True)

    last: Any = catalog.execute(
        f"SELECT {columns} JOIN producers ON number = last_append WHERE name = ?", (producer.name,)
    ).fetchone()
    if last is not None and last[2] is not None and sequence < last[2]:
        raise broken(f"the sequence goes back from {last[2]}")
    if progress is not None:
        if last is None and progress.start != Position():
            raise broken(f"the first append begins at {progress.start}, not at the start")
        if last is not None and last[4] != str(progress.start):
            raise broken(f"begins at {progress.start}, but the last append ended at {last[4]}")
    return None
