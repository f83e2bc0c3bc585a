"""One batch of one level in one bucket: what arrives packed, one step of the operator, what goes on packed.

port in    >= 0       changes of that input of the operator
           WATERMARK  one row {watermark: int64}: how far event time has come; in every bucket or in none
port out   ANSWER     the answer, spread by the level's key
           DEAD       dead letters, in this bucket; only from the last level
           WATERMARK  passed on to the same bucket of the next level
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UsageError
from headwater.process import duck
from headwater.process.keyed.operator import Answer, State
from headwater.process.keyed.packing import pack, pack_by_key, unpack
from headwater.process.plan import CHANGES, Plan

WATERMARK = -1
ANSWER = 0
DEAD = 1


@dataclass(frozen=True)
class Blob:
    bucket: int
    port: int
    data: bytes


def pack_watermark(watermark: int) -> bytes:
    return pack(pa.table({"watermark": pa.array([watermark], pa.int64())}))


def run_batch(
    plan: Plan, level: int, bucket: int, state: State, arriving: Mapping[int, Sequence[bytes]]
) -> Iterator[Blob]:
    """The level's step on what has arrived by port, in any order. The state is up to date once all was taken."""
    # Tasks deliver in any order; the operators do not mind, sorting makes what they write the same bytes every time.
    tables = {port: unpack(sorted(blobs)) for port, blobs in sorted(arriving.items())}
    told = tables.pop(WATERMARK, None)
    watermark: int | None = pc.min(told["watermark"]).as_py() if told is not None else None
    answer = plan.levels[level].operator.step(state, tables, watermark)
    is_last = level == len(plan.levels) - 1
    if watermark is not None and not is_last:
        yield Blob(bucket, WATERMARK, pack_watermark(watermark))
    yield from _answered(plan, level, answer)
    if answer.dead is not None and answer.dead.num_rows:
        if not is_last:
            raise UsageError(
                what=f"level {level + 1} of {len(plan.levels)} in the plan of {plan.view!r} has dead letters, "
                "which only the last level may have",
                do="Stop on errors there, or make it a view of its own and read that",
            )
        yield Blob(bucket, DEAD, pack(answer.dead))


def _answered(plan: Plan, level: int, answer: Answer) -> Iterator[Blob]:
    after = plan.levels[level]
    rows = answer.rows if after.sql is None else duck.run(after.sql, **{CHANGES: answer.rows})
    for target, data in pack_by_key(rows, after.key, plan.buckets):
        yield Blob(target, ANSWER, data)
