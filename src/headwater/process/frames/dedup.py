"""Each record once: a repeated one is left out as long as the first is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.durations import micros
from headwater.errors import BadFrame
from headwater.process.frames.event_time import event_time, require_columns, require_time, watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def dedup(frame: DataFrame, columns: str | Sequence[str], *, within: str, time: str) -> DataFrame:
    """The first record of each value of `columns`; repetitions whose `time` is up to `within` later are left out.

    Spark remembers a value until the watermark passes its time plus `within`, and forgets at the end of a batch; the
    watermark itself runs `within` behind. So a repetition within is left out for certain, one later *may* be. A record
    that comes more than `within` late is left out too. A frame that does not stream is refused.
    """
    delay = micros(within, what="within")
    keys = [columns] if isinstance(columns, str) else list(columns)
    if not keys:
        raise BadFrame(what="no column to tell repetitions by", do="Name the columns that are equal in repetitions")
    require_columns(frame, keys)
    require_time(frame, time)
    if not frame.isStreaming:
        raise BadFrame(what="dedup of a frame that does not stream", do="Use frame.dropDuplicates(columns) there")
    there = watermarks(frame)
    if not there:
        frame = event_time(frame, time, lateness=within)
    elif there != {time: delay // 1000}:
        told = ", ".join(f"{name!r} by {ms} ms" for name, ms in there.items())
        raise BadFrame(
            what=f"the frame waits for {told}, dedup for {time!r} by {within!r}",
            do="Spark remembers for as long as it waits: give both the same time and length, or leave event_time out",
        )
    return frame.dropDuplicatesWithinWatermark(keys)
