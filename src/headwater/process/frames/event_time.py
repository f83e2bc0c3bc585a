"""Event time: which column says when something happened, how late a record may come, and a device's clock put right.

Spark writes a watermark into the metadata of its column, which is how `watermarks` finds it again, through projections
and renamings. It allows one watermark on the way from a topic to an operator with state, and tells of a second one only
when the query runs; we tell at the call. A frame that does not stream has no watermark: there is nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from headwater.durations import micros, spark_text
from headwater.errors import BadFrame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DELAY = "spark.watermarkDelayMs"


def event_time(frame: DataFrame, column: str, *, lateness: str) -> DataFrame:
    """The frame with `column` as its event time: Spark keeps state open for records that come up to `lateness` late."""
    delay = micros(lateness, what="lateness", zero=True)
    require_time(frame, column)
    there = watermarks(frame)
    if there:
        raise BadFrame(
            what=f"the frame has its event time already: {', '.join(there)}",
            do="Call event_time once, before windows, joins and dedup; Spark refuses a second one",
        )
    return frame.withWatermark(column, spark_text(delay))


def corrected(happened: Column | str, sent: Column | str, received: Column | str) -> Column:
    """When it happened by our clock; the rule is `headwater.clock.corrected`, here for columns of timestamps.

    Null where `happened` is null; where `sent` is null there is nothing to correct by.
    """
    first, second, third = (F.col(c) if isinstance(c, str) else c for c in (happened, sent, received))
    by_our_clock = F.coalesce(first + (third - second), first)
    return F.when(first.isNotNull(), F.least(by_our_clock, third))


def watermarks(frame: DataFrame) -> dict[str, int]:
    """The columns that carry a watermark, with its delay in milliseconds."""
    return {field.name: field.metadata[_DELAY] for field in frame.schema if _DELAY in (field.metadata or {})}


def require_columns(frame: DataFrame, columns: list[str], *, side: str = "the frame") -> None:
    for column in columns:
        if column not in frame.columns:
            raise BadFrame(what=f"{side} has no column {column!r}", do=f"Columns there: {', '.join(frame.columns)}")


def require_time(frame: DataFrame, column: str, *, side: str = "the frame") -> None:
    require_columns(frame, [column], side=side)
    kind = frame.schema[column].dataType
    if not isinstance(kind, TimestampType):
        raise BadFrame(
            what=f"column {column!r} of {side} is {kind.simpleString()}, not timestamp",
            do="Cast it: to_timestamp for text, timestamp_seconds or timestamp_millis for numbers",
        )
