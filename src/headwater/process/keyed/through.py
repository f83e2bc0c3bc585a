"""A batch through all levels of a plan in one process: rows go from bucket to bucket without being packed.

Where a level's state can be read and written as a whole, its buckets are one (`WHOLE`): a step costs hardly more for
all keys than for a quarter of them, if they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from headwater.process.keyed.bucket import Arrived, Rows, Ways, begins, is_for, run_batch, together
from headwater.process.keyed.operator import State
from headwater.process.keyed.spreading import WHOLE
from headwater.process.plan import OUT, Plan

Places = dict[int, dict[int, list[pa.Table]]]
"""Rows by the bucket that they are in, and their port there."""


def deliver(leaving: Iterable[Rows], into: Places) -> None:
    for each in leaving:
        into.setdefault(each.bucket, {}).setdefault(each.port, []).append(each.rows)


def ways_of(plan: Plan, *, unite: bool) -> Ways:
    """Into how many buckets rows are spread: into one, if those of the level that they go to are one."""
    whole = [unite and node.level in plan.whole_levels for node in plan.nodes]
    return lambda send: 1 if send.node != OUT and whole[send.node] else plan.buckets


def through(
    plan: Plan,
    arriving: Places,
    state: Callable[[int, int], State],
    *,
    watermark: int | None,
    first: bool,
    unite: bool = True,
) -> Places:
    """What comes out of the last level. `state` is asked for that of a level and bucket, once, when it is needed.

    `first` says that it is the view's first batch.
    """
    first = first and begins(plan)
    ways = ways_of(plan, unite=unite)
    for level in range(plan.levels):
        whole = unite and level in plan.whole_levels
        following: Places = {}
        for bucket in range(1 if whole else plan.buckets):
            here = {port: tables for port, tables in arriving.get(bucket, {}).items() if is_for(plan, level, port)}
            ports = {port: together(tables) for port, tables in here.items()}
            if arrived := Arrived(ports, watermark, first and bucket == 0):
                held = state(level, WHOLE if whole else bucket)
                deliver(run_batch(plan, level, bucket, held, arrived, ways), following)
        for bucket, every in arriving.items():
            for port, tables in every.items():
                if not is_for(plan, level, port):
                    following.setdefault(bucket, {}).setdefault(port, []).extend(tables)
        arriving = following
    return arriving
