"""The one transaction in which an append happens.

    1  Large chunks are durable files already (`Disk.write`); nothing lists them yet.
    2  A newer epoch of the producer refuses the append.
    3  A sequence that was appended before returns the first answer, if it also covers the same inputs.
    4  Progress goes on exactly where the producer's last append ended.
    5  Offsets are taken; the append and its chunks are listed.
    6  The transaction commits at synchronous=FULL. Only then is the append acknowledged.

A crash before 6 leaves nothing but files that no row lists; after 6, everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from headwater.errors import Fenced, ProgressBroken, UsageError
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Appended, Part, Producer, Progress


def append_in(
    catalog: apsw.Connection,
    parts: Sequence[Part],
    ids: Mapping[str, int],
    *,
    now: int,
    producer: Producer | None,
    sequence: int | None,
    progress: Progress | None,
) -> Appended:
    if (producer is None) != (sequence is None):
        raise UsageError(what="a producer and a sequence go together", do="Give both or neither")
    if producer is not None and sequence is not None:
        repeated = _admit(catalog, producer, sequence, progress)
        if repeated is not None:
            return repeated

    ends: dict[str, dict[int, int]] = {}
    number, last_at = catalog.execute("SELECT coalesce(max(number), 0), max(appended_at) FROM appends").fetchone() or (
        0,
        0,
    )
    number += 1
    for part in parts:
        if part.rows == 0:
            continue
        topic = ids[part.topic]
        row = catalog.execute(
            'INSERT INTO ends(topic, partition, "end") VALUES (?, ?, ?)'
            ' ON CONFLICT(topic, partition) DO UPDATE SET "end" = "end" + excluded."end" RETURNING "end"',
            (topic, part.partition, part.rows),
        ).fetchone()
        assert row is not None
        end = row[0]
        catalog.execute(
            'INSERT INTO chunks(topic, partition, start, "end", append, crc, size, file, data)'
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (topic, part.partition, end - part.rows, end, number, part.crc, part.size, part.file, part.data),
        )
        ends.setdefault(part.topic, {})[part.partition] = end
    position = Position.of(ends)
    catalog.execute(
        "INSERT INTO appends(number, appended_at, position, producer, epoch, sequence, progress_start, progress_end)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            max(now, last_at or 0),  # never goes back, whatever the machine's clock does
            str(position),
            producer.name if producer else None,
            producer.epoch if producer else None,
            sequence,
            str(progress.start) if progress else None,
            str(progress.end) if progress else None,
        ),
    )
    if producer is not None:
        catalog.execute(
            "INSERT INTO producers(name, epoch, last_append) VALUES (?, ?, ?)"
            " ON CONFLICT(name) DO UPDATE SET epoch = excluded.epoch, last_append = excluded.last_append",
            (producer.name, producer.epoch, number),
        )
    return Appended(AppendNumber(number), position)


def _admit(catalog: apsw.Connection, producer: Producer, sequence: int, progress: Progress | None) -> Appended | None:
    """Steps 2 to 4: raise, or return the answer of an earlier append, or None for one that is new."""

    def broken(why: str) -> ProgressBroken:
        return ProgressBroken(producer=producer.name, sequence=sequence, why=why)

    known = catalog.execute("SELECT epoch FROM producers WHERE name = ?", (producer.name,)).fetchone()
    if known is not None and known[0] > producer.epoch:
        raise Fenced(producer=producer.name, epoch=producer.epoch, current=known[0])

    columns = "number, position, sequence, progress_start, progress_end FROM appends"
    first = catalog.execute(
        f"SELECT {columns} WHERE producer = ? AND sequence = ?", (producer.name, sequence)
    ).fetchone()
    if first is not None:
        if progress is not None and (first[3], first[4]) != (str(progress.start), str(progress.end)):
            raise broken(
                f"appended before for inputs {first[3]} to {first[4]}, now for {progress.start} to {progress.end}"
            )
        return Appended(AppendNumber(first[0]), Position.parse(first[1]), repeated=True)

    last = catalog.execute(
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
