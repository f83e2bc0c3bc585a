"""A batch through all levels of a plan in one process: rows go from bucket to bucket without being packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from headwater.process.keyed.bucket import Arrived, Rows, begins, is_for, run_batch, together
from headwater.process.keyed.operator import State
from headwater.process.plan import Plan

Places = dict[int, dict[int, list[pa.Table]]]
"""Rows by the bucket that they are in, and their port there."""


def deliver(leaving: Iterable[Rows], into: Places) -> None:
    for each in leaving:
        into.setdefault(each.bucket, {}).setdefault(each.port, []).append(each.rows)


def through(
    plan: Plan, arriving: Places, state: Callable[[int, int], State], *, watermark: int | None, first: bool
) -> Places:
    """What comes out of the last level. `state` is asked for that of a level and bucket, once, when it is needed.

    `first` says that it is the view's first batch.
    """
    first = first and begins(plan)
    for level in range(plan.levels):
        following: Places = {}
        for bucket in range(plan.buckets):
            here = {}
            for port, tables in arriving.get(bucket, {}).items():
                if is_for(plan, level, port):
                    here[port] = together(tables)
                else:
                    following.setdefault(bucket, {}).setdefault(port, []).extend(tables)
            if arrived := Arrived(here, watermark, first and bucket == 0):
                deliver(run_batch(plan, level, bucket, state(level, bucket), arrived), following)
        arriving = following
    return arriving
