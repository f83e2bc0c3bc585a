"""What a function from DataFrames to a DataFrame calls: event time, windows, joins, dedup, sketches, Bloom filters.

    from headwater import frames

    def busy(clicks):
        clicks = frames.event_time(clicks, "at", lateness="10 minutes")
        return frames.flat_window(clicks.groupBy(frames.tumbling("at", "1 minute"), "page").count())

The functions live in `process/frames/`. They are imported at the first use, and pyspark with them: a process that only
appends and reads does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.process.frames import (
        attempt,
        bloom_filter,
        bloom_merge,
        corrected,
        dedup,
        distinct_estimate,
        distinct_merge,
        distinct_sketch,
        event_time,
        flat_window,
        hopping,
        join_within,
        might_contain,
        quantile_count,
        quantile_estimate,
        quantile_merge,
        quantile_rank,
        quantile_sketch,
        session,
        set_difference,
        set_estimate,
        set_intersection,
        set_merge,
        set_sketch,
        set_union,
        tumbling,
    )
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("headwater.process.frames"), name)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "attempt",
    "bloom_filter",
    "bloom_merge",
    "corrected",
    "dedup",
    "distinct_estimate",
    "distinct_merge",
    "distinct_sketch",
    "event_time",
    "flat_window",
    "hopping",
    "join_within",
    "might_contain",
    "quantile_count",
    "quantile_estimate",
    "quantile_merge",
    "quantile_rank",
    "quantile_sketch",
    "session",
    "set_difference",
    "set_estimate",
    "set_intersection",
    "set_merge",
    "set_sketch",
    "set_union",
    "tumbling",
]
