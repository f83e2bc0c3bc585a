"""Sketches: small binary columns that stand for many values, and that merge.

Three families, one vocabulary. `X_sketch(column)` and `X_merge(sketches)` aggregate, in a batch, in a window, in a
stream; the rest reads a sketch. A merge of sketches answers like one sketch of all values, so a topic of sketches by
minute gives hours and days.

    distinct_*   how many different values     HyperLogLog   2 KB     off by 1.6 % (one standard deviation, 12 bits)
    quantile_*   medians, percentiles, ranks   KLL           3 KB     rank off by 1.33 % at most, in 99 of 100 cases
    set_*        how many in both, in either   Theta         32 KB    off by 1.6 % of the union (12 bits)

Values of distinct and set sketches are compared by their text, whatever their type: 7 and "7" are one value. Nulls are
left out. A KLL sketch throws dice: the same values may give other bytes, within the same bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import BadFrame

if TYPE_CHECKING:
    from pyspark.sql import Column


def distinct_sketch(column: Column | str, *, bits: int = 12) -> Column:
    """Aggregate: the different values. One more bit doubles the size and takes a third off the error; 4 to 21."""
    return F.hll_sketch_agg(_text(column), _between(bits, 4, 21, what="bits"))


def distinct_merge(sketches: Column | str) -> Column:
    """Aggregate: one sketch of many. They must have the same `bits`."""
    return F.hll_union_agg(sketches)


def distinct_estimate(sketch: Column | str) -> Column:
    """How many different values the sketch has seen."""
    return F.hll_sketch_estimate(sketch)


def quantile_sketch(column: Column | str, *, k: int = 200) -> Column:
    """Aggregate: how numbers are spread. `k` from 8 to 65535: twice the k, twice the size and half the error."""
    return F.kll_sketch_agg_double(_column(column).cast("double"), _between(k, 8, 65535, what="k"))


def quantile_merge(sketches: Column | str) -> Column:
    """Aggregate: one sketch of many."""
    return F.kll_merge_agg_double(sketches)


def quantile_estimate(sketch: Column | str, at: float) -> Column:
    """The value that the share `at` of all values does not exceed: `at=0.5` is the median. Null of no values."""
    if not 0 <= at <= 1:
        raise BadFrame(what=f"at={at!r} is not a share", do="Use a number from 0 to 1: 0.5 is the median")
    # Asked of an empty sketch Spark stops the query; a group may have nothing but nulls.
    return F.when(quantile_count(sketch) > 0, F.kll_sketch_get_quantile_double(sketch, F.lit(float(at))))


def quantile_rank(sketch: Column | str, value: Column | float) -> Column:
    """The share of values that do not exceed `value`. Null of no values."""
    asked = F.lit(value).cast("double")
    return F.when(quantile_count(sketch) > 0, F.kll_sketch_get_rank_double(sketch, asked))


def quantile_count(sketch: Column | str) -> Column:
    """How many values the sketch has seen, exactly."""
    return F.kll_sketch_get_n_double(sketch)


def set_sketch(column: Column | str, *, bits: int = 12) -> Column:
    """Aggregate: the different values, for questions about two sets. One more bit doubles the size; 4 to 26."""
    return F.theta_sketch_agg(_text(column), _between(bits, 4, 26, what="bits"))


def set_merge(sketches: Column | str, *, bits: int = 12) -> Column:
    """Aggregate: the union of many."""
    return F.theta_union_agg(sketches, _between(bits, 4, 26, what="bits"))


def set_union(one: Column | str, other: Column | str, *, bits: int = 12) -> Column:
    """A sketch of what is in either."""
    return F.theta_union(one, other, _between(bits, 4, 26, what="bits"))


def set_intersection(one: Column | str, other: Column | str) -> Column:
    """A sketch of what is in both. Its error is that of the union: a small part of large sets is told badly."""
    return F.theta_intersection(one, other)


def set_difference(one: Column | str, other: Column | str) -> Column:
    """A sketch of what is in `one` and not in `other`."""
    return F.theta_difference(one, other)


def set_estimate(sketch: Column | str) -> Column:
    """How many different values are in it."""
    return F.theta_sketch_estimate(sketch)


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _text(column: Column | str) -> Column:
    return _column(column).cast("string")


def _between(value: int, least: int, most: int, *, what: str) -> int:
    if not least <= value <= most:
        raise BadFrame(what=f"{what}={value!r} is not possible", do=f"Use {least} to {most}")
    return value
