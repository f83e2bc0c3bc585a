"""Frames: what a user's function from DataFrames to a DataFrame calls, thin over Spark. One decision a file.

Users find these names in `headwater.frames`, which imports this package (and with it pyspark) at the first use.
"""

from headwater.process.frames.attempt import attempt
from headwater.process.frames.bloom import bloom_filter, bloom_merge, might_contain
from headwater.process.frames.dedup import dedup
from headwater.process.frames.event_time import corrected, event_time
from headwater.process.frames.joins import join_within
from headwater.process.frames.sketches import (
    distinct_estimate,
    distinct_merge,
    distinct_sketch,
    quantile_count,
    quantile_estimate,
    quantile_merge,
    quantile_rank,
    quantile_sketch,
    set_difference,
    set_estimate,
    set_intersection,
    set_merge,
    set_sketch,
    set_union,
)
from headwater.process.frames.windows import flat_window, hopping, session, tumbling

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
