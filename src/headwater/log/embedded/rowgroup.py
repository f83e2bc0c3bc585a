"""Rows that several threads append to one topic at the same moment, made into chunks together.

Turning a row into Arrow costs some fifty microseconds, a hundred rows hardly more; and Python lets one thread at a
time do it. So threads only hand in their rows, and the one that leads makes one chunk a partition of all of them. Each
keeps an append of its own: a number, a position, and an end inside of the chunk (see `Bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import BadRecord, HeadwaterError, TopicNotFound
from headwater.log.embedded.bounds import encode_few
from headwater.log.embedded.chunks import INLINE_BYTES, crc
from headwater.log.embedded.fewrows import MOST
from headwater.log.embedded.rows import KnownTopic
from headwater.log.embedded.transaction import Transaction
from headwater.log.keyhash import grouped, hash_one, key_hash, spread
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Appended, Part
from headwater.log.versions import key_bytes
from headwater.records import to_batch

Encode = Callable[[KnownTopic, int, pa.RecordBatch], Part]


@dataclass
class Handed:
    """What one caller handed in, and what becomes of it."""

    topic: KnownTopic
    rows: Sequence[Mapping[str, Any]]
    turn: int
    """Which partition rows without a key go to."""
    error: HeadwaterError | None = None
    appended: Appended | None = None
    """None also if the topic turned out to be bounded by now: that takes an append of its own."""

    @property
    def answer(self) -> Appended | HeadwaterError | None:
        return self.error or self.appended


@dataclass(frozen=True)
class GroupPart:
    part: Part
    owners: list[int]
    """Which of the group's appends have rows in it, in order, and how many rows up to each one's end."""
    ends: list[int]


@dataclass(frozen=True)
class Group:
    topic: KnownTopic
    handed: list[Handed]
    parts: list[GroupPart]


def encode_groups(handed: Sequence[Handed], encode: Encode) -> list[Group]:
    """One group a topic. A row that does not fit is told to who handed it in, and leaves the others' alone."""
    by_topic: dict[int, list[Handed]] = {}
    for each in handed:
        by_topic.setdefault(each.topic.id, []).append(each)
    return [_encode_group(some[0].topic, some, encode) for some in by_topic.values()]


def _encode_group(topic: KnownTopic, handed: list[Handed], encode: Encode) -> Group:
    if (parts := _few(topic, handed)) is not None:
        return Group(topic, handed, parts)
    batch, fitting = _typed(topic, handed)
    if batch is None or batch.num_rows == 0:
        return Group(topic, fitting, [])
    spec = topic.spec
    owners = np.repeat(np.arange(len(fitting)), [len(each.rows) for each in fitting])
    if spec.key:
        places = spread(key_hash([batch.column(name) for name in spec.key]), spec.partitions)
    else:
        places = np.array([each.turn % spec.partitions for each in fitting], np.int64)[owners]
    order, bounds = grouped(places, spec.partitions)
    ordered, owners = batch.take(pa.array(order)), owners[order]
    parts = []
    for place in range(spec.partitions):
        low, high = int(bounds[place]), int(bounds[place + 1])
        if high > low:
            parts.append(_part(topic, place, ordered.slice(low, high - low), owners[low:high], encode))
    return Group(topic, fitting, parts)


def few_parts(topic: KnownTopic, rows: Sequence[Mapping[str, Any]]) -> list[Part] | None:
    """A few rows of one append, apart by their partitions; None if Arrow has to look at them.

    So it has at times and days that are keys of a versioned topic: here they are numbers already.
    """
    if topic.spec.versioned and not topic.has_plain_key:
        return None
    parts = _few(topic, [Handed(topic, rows, 0)])
    return None if parts is None else [each.part for each in parts]


def _few(topic: KnownTopic, handed: list[Handed]) -> list[GroupPart] | None:
    """The commonest case, spared all that is done for many; None if it is not the case."""
    few, spec = topic.few_rows, topic.spec
    rows = [row for each in handed for row in each.rows]
    if few is None or not 0 < len(rows) <= MOST or (columns := few.typed(rows)) is None:
        return None
    owners = [owner for owner, each in enumerate(handed) for _ in each.rows]
    places: dict[int, list[int]] = {}
    keys = [columns[name] for name in spec.key]
    for row, owner in enumerate(owners):
        one = hash_one([column[row] for column in keys]) if keys else handed[owner].turn << 32
        if one is None:
            return None
        places.setdefault((one >> 32) % spec.partitions, []).append(row)
    parts = []
    for place, some in sorted(places.items()):
        data = few.message(columns, some)
        if data is None or len(data) > INLINE_BYTES:
            return None
        times = [time for row in some if (time := columns[spec.time][row]) is not None] if spec.time else ()
        latest = max(times, default=None)
        own = tuple(key_bytes(tuple(key[row] for key in keys)) for row in some) if spec.versioned else ()
        part = Part(
            spec.name, place, len(some), topic.version, crc(data), len(data), max_time=latest, data=data, keys=own
        )
        last = [at for at in range(len(some)) if at + 1 == len(some) or owners[some[at]] != owners[some[at + 1]]]
        parts.append(GroupPart(part, [owners[some[at]] for at in last], [at + 1 for at in last]))
    return parts


def _typed(topic: KnownTopic, handed: list[Handed]) -> tuple[pa.RecordBatch | None, list[Handed]]:
    spec = topic.spec

    def typed(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        return to_batch(rows, spec.stored, topic=spec.name, required=spec.required)

    try:
        return typed([row for each in handed for row in each.rows]), handed
    except BadRecord as error:
        if len(handed) == 1:
            handed[0].error = error
            return None, []
    fitting = []
    for each in handed:  # one by one, to find whose row it is
        try:
            typed(each.rows)
            fitting.append(each)
        except BadRecord as error:
            each.error = error
    return (typed([row for each in fitting for row in each.rows]) if fitting else None), fitting


def _part(topic: KnownTopic, place: int, records: pa.RecordBatch, owners: Any, encode: Encode) -> GroupPart:
    last = np.flatnonzero(np.append(owners[1:] != owners[:-1], True))  # where the rows of each owner end
    return GroupPart(encode(topic, place, records), owners[last].tolist(), (last + 1).tolist())


def append_group(transaction: Transaction, group: Group, *, now: int) -> None:
    """List the group's chunks; each append gets its number and position."""
    try:
        bounded = transaction.settings(group.topic).most_rows is not None
    except TopicNotFound as error:  # deleted by another process: no matter to other groups of this transaction
        for each in group.handed:
            each.error = error
        return
    if bounded or not group.handed:
        return
    first, at = transaction.next_appends(len(group.handed), now)
    ends: list[dict[int, int]] = [{} for _ in group.handed]
    for part in group.parts:
        start = transaction.end_of(group.topic, part.part.partition)
        numbers = [first + owner for owner in part.owners]
        several = len(numbers) > 1
        bounds = encode_few(numbers, [start + end for end in part.ends], at) if several else None
        transaction.add_chunk(group.topic, part.part, numbers[0], at, last_number=numbers[-1], bounds=bounds)
        for owner, end in zip(part.owners, part.ends, strict=True):
            ends[owner][part.part.partition] = start + end
    name = group.topic.spec.name
    for number, (each, own) in enumerate(zip(group.handed, ends, strict=True), start=first):
        position = Position(((name, tuple(sorted(own.items()))),) if own else ())
        each.appended = Appended(AppendNumber(number), position)
    # The numbers in between are known by the chunks; the newest row says where numbers go on.
    transaction.add_append((first + len(group.handed) - 1, at, None, None, None, None, None, None))
