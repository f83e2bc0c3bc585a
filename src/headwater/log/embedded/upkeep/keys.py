"""Idempotency keys that are old enough are forgotten: their rows in `producers` and `appends`. The records stay.

A key is a producer of one append, and who repeats an append does so soon. Other producers are never touched: pipelines
and captures go on from their last append, however long ago it was. The newest append of the log keeps its row, for
numbers go on from it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from headwater.log.protocol import KEYED
from headwater.log.spec import Settings

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

BEYOND = KEYED[:-1] + chr(ord(KEYED[-1]) + 1)
"""After all names that begin so."""
AT_ONCE = 2000
"""Keys that go in one transaction: others who append wait for it."""

_Key = tuple[str, int]
"""Its name, and the number of its append."""


def forget_keys(log: EmbeddedLog) -> int:
    """Returns how many."""
    lives = {spec.name: int(spec.settings.keys_s * 1_000_000) for spec in log.topics()}
    default = int(Settings().keys_s * 1_000_000)
    now, after, gone = log.clock(), "", 0
    while page := _page(log, after):
        after = page[-1][0]
        old = [
            (name, number)
            for name, number, at, position in page
            if now - at >= lives.get(position.partition(":")[0], default)
        ]
        log.committer.run(partial(_delete, old))
        gone += len(old)
    return gone


def _page(log: EmbeddedLog, after: str) -> list[tuple[str, int, int, str]]:
    with log.catalog.read() as catalog:
        rows: list[Any] = catalog.execute(
            "SELECT producer, number, appended_at, position FROM appends WHERE producer > ? AND producer < ?"
            " AND number < (SELECT max(number) FROM appends) ORDER BY producer LIMIT ?",
            (max(after, KEYED), BEYOND, AT_ONCE),
        ).fetchall()
    return rows


def _delete(keys: list[_Key], catalog: apsw.Connection) -> None:
    catalog.executemany("DELETE FROM producers WHERE name = ? AND last_append = ?", keys).fetchall()
    catalog.executemany("DELETE FROM appends WHERE producer = ? AND number = ?", keys).fetchall()
