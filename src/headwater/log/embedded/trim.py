"""Moving the beginning of a partition: chunks wholly before it are no longer listed, their files are garbage."""

from __future__ import annotations

import apsw

from headwater.log.embedded.rows import KnownTopic


def trim_to(catalog: apsw.Connection, topic: KnownTopic, partition: int, start: int, *, now: int) -> None:
    given = (topic.id, partition, start)
    catalog.execute(
        "INSERT OR IGNORE INTO garbage SELECT file, ? FROM chunks"
        ' WHERE topic = ? AND partition = ? AND "end" <= ? AND file IS NOT NULL',
        (now, *given),
    )
    catalog.execute('DELETE FROM chunks WHERE topic = ? AND partition = ? AND "end" <= ?', given)
    catalog.execute(
        "UPDATE ends SET start = max(start, ?) WHERE topic = ? AND partition = ?", (start, topic.id, partition)
    )
