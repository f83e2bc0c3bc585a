"""How far upkeep may go: never past what somebody has yet to read."""

from __future__ import annotations

from typing import Any

import apsw

from headwater.log.embedded.rows import KnownTopic


def pinned(catalog: apsw.Connection, topic: KnownTopic, partition: int) -> tuple[int, str] | None:
    """The lowest pin of a partition, and whose it is: a pipeline may read from there again after a crash."""
    row: Any = catalog.execute(
        'SELECT "offset", name FROM pins WHERE topic = ? AND partition = ? ORDER BY "offset" LIMIT 1',
        (topic.id, partition),
    ).fetchone()
    return (row[0], row[1]) if row else None


def unread(catalog: apsw.Connection, topic: KnownTopic, partition: int) -> int | None:
    """The lowest position of any registered consumer: a pin, a group's commit, a queue's cursor or open delivery."""
    row: Any = catalog.execute(
        'SELECT min(o) FROM (SELECT "offset" AS o FROM pins WHERE topic = :t AND partition = :p UNION ALL'
        ' SELECT "offset" FROM committed WHERE topic = :t AND partition = :p UNION ALL'
        ' SELECT c."offset" FROM cursors c JOIN queues q ON q.name = c.queue WHERE q.topic = :t AND c.partition = :p'
        ' UNION ALL SELECT d."offset" FROM deliveries d JOIN queues q ON q.name = d.queue'
        " WHERE q.topic = :t AND d.partition = :p)",
        {"t": topic.id, "p": partition},
    ).fetchone()
    return row[0] if row else None
