"""Append boundaries: the newest one, and the last one up to which no more than so much came.

How far that is has to be searched for, append by append. So all that is there is counted first: as a rule it is within
the limit, and one statement has told it. A partition's end is that of its last chunk, and stays when upkeep has removed
what was before it, so both ways give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from headwater.errors import TopicNotFound
from headwater.log.embedded.read import ends_at, rows_of_bytes
from headwater.log.embedded.rows import KnownTopic
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Snapshot


def newest(catalog: apsw.Connection, topics: Sequence[KnownTopic]) -> Snapshot:
    """By one statement."""
    marks = ", ".join("?" * len(topics))
    rows: list[Any] = catalog.execute(
        "SELECT NULL, NULL, coalesce(max(number), 0) FROM appends"
        f' UNION ALL SELECT topic, partition, "end" FROM ends WHERE topic IN ({marks})',
        [topic.id for topic in topics],
    ).fetchall()
    found: dict[int | None, dict[int, int]] = {}
    for topic, partition, end in rows:
        found.setdefault(topic, {})[partition] = end
    for known in topics:
        if known.id not in found:
            raise TopicNotFound(topic=known.spec.name)
    (number,) = found[None].values()
    return Snapshot(AppendNumber(number), Position.of({known.spec.name: found[known.id] for known in topics}))


def rows_since(snapshot: Snapshot, after: Snapshot) -> int:
    return snapshot.position.total - after.position.total


def limited(
    catalog: apsw.Connection,
    topics: Sequence[KnownTopic],
    after: Snapshot,
    *,
    max_rows: int | None,
    max_bytes: int | None,
) -> Snapshot:
    """The last one within both limits, but at least one append further if there is one."""
    if max_bytes is not None:
        fitting = rows_of_bytes(catalog, [each.id for each in topics], after.number, max_bytes)
        max_rows = fitting if max_rows is None else min(max_rows, fitting)
    last = newest(catalog, topics)
    if max_rows is None or rows_since(last, after) <= max_rows:
        return last
    most = max_rows

    def at(number: int) -> Snapshot:
        ends = {each.spec.name: ends_at(catalog, each, number) for each in topics}
        return Snapshot(AppendNumber(number), Position.of(ends))

    end = _last(after.number, last.number, lambda number: rows_since(at(number), after) <= most)
    if rows_since(at(end), after) <= 0:  # the next append is larger than the limit: it is a batch of its own
        end = _last(after.number, last.number, lambda number: rows_since(at(number), after) <= 0) + 1
    return at(end)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The greatest number in low..high for which a property that holds up to some point, and at low, holds."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
