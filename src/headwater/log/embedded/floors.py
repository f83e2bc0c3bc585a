"""Numbers that are never given twice, not even after what had them is gone.

    generation   the greatest of all groups that were removed: a group made again begins above it, so a member of the
                 one before it is refused, also if both its name and the number of joins are the same
    topic        the greatest id of all topics that were deleted: whoever still knows an id knows the topic it means

One number each for the whole log, however many groups and topics come and go.
"""

from __future__ import annotations

from typing import Literal

import apsw

Floor = Literal["generation", "topic"]


def floor(catalog: apsw.Connection, name: Floor) -> int:
    return int(catalog.execute("SELECT coalesce(max(value), 0) FROM floors WHERE name = ?", (name,)).get)


def raise_floor(catalog: apsw.Connection, name: Floor, value: int) -> None:
    catalog.execute(
        "INSERT INTO floors VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = max(value, excluded.value)",
        (name, value),
    )
