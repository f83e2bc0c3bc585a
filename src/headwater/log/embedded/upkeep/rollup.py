"""Rolling up: many small chunks become few large ones, and single appends stop costing a row of the catalog each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from headwater.log.embedded.bounds import Bounds
from headwater.log.embedded.rows import Chunk, KnownTopic, Swapped, chunk_bounds, select_chunks
from headwater.log.embedded.upkeep.rewriting import Place, slices, write_chunk
from headwater.log.embedded.upkeep.swap import NewChunk, runs, swap

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

SMALL_BYTES = 4 * 1024 * 1024
MOST_BYTES = 32 * 1024 * 1024
LEAST_CHUNKS = 8
"""Fewer neighbours than this are not worth the writing."""


def roll_up(log: EmbeddedLog, topic: KnownTopic, *, least_chunks: int = LEAST_CHUNKS) -> int:
    """Returns how many chunks were rolled up. One swap a run: progress is kept whatever happens after it."""
    with log.catalog.read() as catalog:
        listed = select_chunks(catalog, topic.id, "true", ())
    rolled = 0
    for run in runs(listed, small=SMALL_BYTES, most=MOST_BYTES):
        if len(run) < least_chunks:
            continue
        try:
            new = _one(log, topic, run)
        except Swapped:
            continue
        rolled += len(run) if swap(log, run, [new]) else 0
    if rolled:
        log.committer.run(_forget_plain_appends)
    return rolled


def _one(log: EmbeddedLog, topic: KnownTopic, run: list[Chunk]) -> NewChunk:
    first, last = run[0], run[-1]
    with log.catalog.read() as catalog:
        bounds = Bounds.joined([chunk_bounds(catalog, chunk) for chunk in run])
    rows = sum(chunk.rows for chunk in run)
    records = (some for chunk in run for some in slices(log, topic, chunk))
    place = Place(first.partition, first.start, last.end, rows, bounds, first.time_before)
    return write_chunk(log, topic, place, records)


def _forget_plain_appends(catalog: apsw.Connection) -> None:
    """An append without a producer is known by its chunks alone; the newest row stays, for numbers go on from it."""
    catalog.execute("DELETE FROM appends WHERE producer IS NULL AND number < (SELECT max(number) FROM appends)")
