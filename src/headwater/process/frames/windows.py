"""Windows over event time, as columns to group by; and their two ends as columns of their own.

Starts are inclusive, ends exclusive; windows are counted from 1970-01-01 00:00 UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headwater.durations import micros, spark_text
from headwater.errors import BadFrame
from headwater.process.frames.event_time import require_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW = "window"
START, END = "window_start", "window_end"


def tumbling(column: Column | str, size: str) -> Column:
    """Windows of `size`, one after the other: each record is in one."""
    return F.window(column, spark_text(micros(size, what="size"))).alias(WINDOW)


def hopping(column: Column | str, size: str, *, every: str) -> Column:
    """Windows of `size`, a new one `every` so often: each record is in several."""
    length, step = micros(size, what="size"), micros(every, what="every")
    if step > length:
        raise BadFrame(
            what=f"windows of {size!r}, a new one every {every!r}, leave records between them out",
            do="Make 'every' at most the size",
        )
    return F.window(column, spark_text(length), spark_text(step)).alias(WINDOW)


def session(column: Column | str, *, gap: str) -> Column:
    """Windows that last as long as records of a group follow each other within at most `gap`; the end is the last
    record's time plus `gap`. Spark keeps them in append mode only, and with another grouping column beside them."""
    return F.session_window(column, spark_text(micros(gap, what="gap"))).alias(WINDOW)


def flat_window(frame: DataFrame, column: str = WINDOW) -> DataFrame:
    """The frame with `window_start` and `window_end` in the place of the struct `column`.

    The last step before a topic: Spark finds a window again only by the struct, so windows of windows come before it.
    """
    require_columns(frame, [column])
    kind = frame.schema[column].dataType
    if not isinstance(kind, StructType) or kind.names != ["start", "end"]:
        raise BadFrame(
            what=f"column {column!r} is {kind.simpleString()}, not a window",
            do="Name the column that tumbling, hopping or session made",
        )
    for name in (START, END):
        if name in frame.columns:
            raise BadFrame(what=f"the frame has a column {name!r} already", do="Rename it before flat_window")
    ends = [F.col(f"`{column}`.start").alias(START), F.col(f"`{column}`.end").alias(END)]
    place = frame.columns.index(column)
    others = [F.col(f"`{name}`") for name in frame.columns]
    return frame.select(*others[:place], *ends, *others[place + 1 :])
