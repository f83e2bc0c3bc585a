"""A plan run in memory, bucket by bucket, as Spark would run it but without Spark: for tests of operators and plans."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headwater.process import duck
from headwater.process.keyed.bucket import ANSWER, DEAD, sent
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.through import Places, deliver, through
from headwater.process.plan import Plan
from headwater.records import OFFSET, PARTITION, WEIGHT


class PlanBench:
    """`push` is one batch. `again` runs the same batch a second time on the state before it, as after a crash."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._states = self._fresh()
        self._before = self._fresh()
        self._last: tuple[Mapping[str, pa.Table], int | None, bool] = ({}, None, False)
        self.output: list[pa.Table] = []
        self.dead: list[pa.Table] = []
        """Dead letters, batch by batch."""

    def push(self, changes: Mapping[str, pa.Table], watermark: int | None = None) -> pa.Table:
        """Changes by topic, in the columns as they are stored (a table's with weights), and the watermark in µs.

        For a read with metadata the changes have the columns `_partition` and `_offset`. The answer is kept too.
        """
        self._last = changes, watermark, not self.output
        self._before = {place: state.copy() for place, state in self._states.items()}
        answer, dead = self._run(*self._last)
        self.output.append(answer)
        self.dead += dead
        return answer

    def again(self) -> pa.Table:
        self._states = {place: state.copy() for place, state in self._before.items()}
        return self._run(*self._last)[0]

    def view(self) -> pa.Table:
        """The sum of all that was emitted; raises if a row was taken away that was never there."""
        rows = pa.concat_tables([self._nothing(), *self.output])
        summed = duck.run(
            f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM rows GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
            rows=rows,
        )
        assert all(weight > 0 for weight in summed[WEIGHT].to_pylist()), "a row was retracted that was never there"
        return summed

    def state(self, level: int, bucket: int) -> MemoryState:
        return self._states[level, bucket]

    def _fresh(self) -> dict[tuple[int, int], MemoryState]:
        levels, buckets = range(self.plan.levels), range(self.plan.buckets)
        return {(level, bucket): MemoryState() for level in levels for bucket in buckets}

    def _nothing(self) -> pa.Table:
        return self.plan.schema.append(pa.field(WEIGHT, pa.int64())).empty_table()

    def _run(
        self, changes: Mapping[str, pa.Table], watermark: int | None, first: bool
    ) -> tuple[pa.Table, list[pa.Table]]:
        leaves = through(
            self.plan,
            self._read(changes),
            lambda level, bucket: self._states[level, bucket],
            watermark=watermark,
            first=first,
        )
        answers = [table for _, ports in sorted(leaves.items()) for table in ports.get(ANSWER, ())]
        dead = [table for _, ports in sorted(leaves.items()) for table in ports.get(DEAD, ())]
        return pa.concat_tables([self._nothing(), *answers]), dead

    def _read(self, changes: Mapping[str, pa.Table]) -> Places:
        arriving: Places = {}
        for read in self.plan.reads:
            rows = changes.get(read.topic)
            if rows is not None and rows.num_rows:
                columns = [*read.columns, *((PARTITION, OFFSET) if read.metadata else ())]
                for send in read.sends:
                    deliver(sent(send, rows.select(columns), self.plan.buckets), arriving)
        return arriving
