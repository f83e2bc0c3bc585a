"""Retention: the oldest chunks go, by age or by size, as the topic's settings say; never past a pin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from headwater.log.embedded.rows import Chunk, KnownTopic, chunk_bounds, select_chunks
from headwater.log.embedded.trim import trim_to
from headwater.log.embedded.upkeep.limits import pinned

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


def retain(log: EmbeddedLog, topic: KnownTopic) -> dict[int, int]:
    """The new start of every partition that lost records. Groups do not hold it up: they are told what they missed."""
    if topic.spec.settings.retain_s is None and topic.spec.settings.retain_bytes is None:
        return {}
    return log.committer.run(lambda catalog: _retain_in(catalog, topic, now=log.clock()))


def _retain_in(catalog: apsw.Connection, topic: KnownTopic, *, now: int) -> dict[int, int]:
    moved = {}
    for partition in range(topic.spec.partitions):
        listed = select_chunks(catalog, topic.id, "partition = ?", (partition,))
        pin = pinned(catalog, topic, partition)
        going = _going(catalog, topic, listed, now=now)
        kept_by_pin = [chunk for chunk in going if pin is None or chunk.end <= pin[0]]
        if kept_by_pin:
            start = moved[partition] = kept_by_pin[-1].end
            trim_to(catalog, topic, partition, start, now=now)
    return moved


def _going(catalog: apsw.Connection, topic: KnownTopic, listed: list[Chunk], *, now: int) -> list[Chunk]:
    """From the beginning, as long as a chunk is too old as a whole or there is too much from it on."""
    settings = topic.spec.settings
    left = sum(chunk.size for chunk in listed)
    going = []
    for chunk in listed:
        last_time = int(chunk_bounds(catalog, chunk).times[-1])
        too_old = settings.retain_s is not None and last_time < now - settings.retain_s * 1_000_000
        too_much = settings.retain_bytes is not None and left > settings.retain_bytes
        if not (too_old or too_much):
            break
        going.append(chunk)
        left -= chunk.size
    return going
