"""The join of two streams within an interval of event time.

Both sides wait in Spark's state until no partner can come any more, which only watermarks tell: a stream without one
would be kept for ever, and is refused. A row that found no partner (how="left", "right", "full") comes out when the
watermark has passed its time by `within`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812

from headwater.durations import micros, spark_text
from headwater.errors import BadFrame
from headwater.process.frames.event_time import require_columns, require_time, watermarks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

How = Literal["inner", "left", "right", "full"]
_SPARKS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}
_RIGHT = "right_"


def join_within(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str],
    within: str,
    how: How = "inner",
    left_time: str | None = None,
    right_time: str | None = None,
) -> DataFrame:
    """Rows of both sides with equal `on` whose times are at most `within` apart, in either direction.

    A side's time is its watermarked column unless it is named. The result has the columns `on` once, then the left's,
    then the right's; one of the right's that has a name of the left's gets `right_` before it.
    """
    if how not in _SPARKS:
        raise BadFrame(what=f"how={how!r} is not a way to join", do=f"Use one of {', '.join(_SPARKS)}")
    apart = F.expr(f"INTERVAL {spark_text(micros(within, what='within', zero=True))}")
    keys = [on] if isinstance(on, str) else list(on)
    if not keys:
        raise BadFrame(what="on=[] names no column", do="Name the columns that are equal on both sides")
    for side, frame in (("left", left), ("right", right)):
        require_columns(frame, keys, side=f"the {side} frame")
    here, there = _time(left, left_time, side="left"), _time(right, right_time, side="right")
    # The right's columns are renamed first, all of them: names then tell the sides apart even if both are one topic.
    # Renamed, not aliased: a renamed column keeps its watermark.
    inner = {name: f"__right_{place}" for place, name in enumerate(right.columns)}
    renamed = right.withColumnsRenamed(inner)
    first, second = _named(here), _named(inner[there])
    condition = (second >= first - apart) & (second <= first + apart)
    for key in keys:
        condition &= _named(key) == _named(inner[key])
        if how == "full":
            # Spark's full join of streams takes null for equal to null; for the other three it filters nulls itself.
            condition &= _named(key).isNotNull() & _named(inner[key]).isNotNull()
    joined = left.join(renamed, condition, _SPARKS[how])
    return joined.select(*_output(left.columns, inner, keys, how))


def _time(frame: DataFrame, given: str | None, *, side: str) -> str:
    marked = watermarks(frame)
    name = given or (next(iter(marked)) if len(marked) == 1 else None)
    if name is not None:
        require_time(frame, name, side=f"the {side} frame")
    if frame.isStreaming and (name not in marked if name else not marked):
        raise BadFrame(
            what=f"the {side} frame streams without a watermark" + (f" on {name!r}" if name else ""),
            do=f"Say how late its records may be: event_time({side}, {name or 'COLUMN'!r}, lateness='10 minutes')",
        )
    if name is None:
        raise BadFrame(what=f"the {side} frame's time is not given", do=f"Name the column: {side}_time=...")
    return name


def _output(lefts: list[str], inner: dict[str, str], keys: list[str], how: How) -> list[Column]:
    columns = []
    for key in keys:
        mine, other = _named(key), _named(inner[key])
        value = {"inner": mine, "left": mine, "right": other, "full": F.coalesce(mine, other)}[how]
        columns.append(value.alias(key))
    columns += [_named(name) for name in lefts if name not in keys]
    for name, hidden in inner.items():
        if name in keys:
            continue
        shown = _RIGHT + name if name in lefts else name
        if shown != name and (shown in lefts or shown in inner):
            raise BadFrame(
                what=f"{name!r} and {shown!r} are both taken", do="Rename one of the columns before the join"
            )
        columns.append(_named(hidden).alias(shown))
    return columns


def _named(name: str) -> Column:
    return F.col(f"`{name}`")
