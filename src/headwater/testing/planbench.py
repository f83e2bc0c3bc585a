"""A plan run in memory, bucket by bucket, as Spark would run it but without Spark: for tests of operators and plans."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headwater.process import duck
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.packing import pack_by_key, unpack
from headwater.process.plan import CHANGES, Plan
from headwater.records import WEIGHT


class PlanBench:
    """`push` is one batch. `again` runs the same batch a second time on the state before it, as after a crash."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._states = self._fresh()
        self._before = self._fresh()
        self._last: Mapping[str, pa.Table] = {}
        self.output: list[pa.Table] = []

    def push(self, changes: Mapping[str, pa.Table]) -> pa.Table:
        """Changes by topic, in the columns as they are stored (a table's with weights). The answer is kept too."""
        self._last = changes
        self._before = {place: state.copy() for place, state in self._states.items()}
        answer = self._run(changes)
        self.output.append(answer)
        return answer

    def again(self) -> pa.Table:
        self._states = {place: state.copy() for place, state in self._before.items()}
        return self._run(self._last)

    def view(self) -> pa.Table:
        """The sum of all that was emitted; raises if a row was taken away that was never there."""
        rows = pa.concat_tables([self._nothing(), *self.output])
        summed = duck.run(
            f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM rows GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
            rows=rows,
        )
        assert all(weight > 0 for weight in summed[WEIGHT].to_pylist()), "a row was retracted that was never there"
        return summed

    def _fresh(self) -> dict[tuple[int, int], MemoryState]:
        levels, buckets = range(len(self.plan.levels)), range(self.plan.buckets)
        return {(level, bucket): MemoryState() for level in levels for bucket in buckets}

    def _nothing(self) -> pa.Table:
        return self.plan.schema.append(pa.field(WEIGHT, pa.int64())).empty_table()

    def _run(self, changes: Mapping[str, pa.Table]) -> pa.Table:
        plan = self.plan
        arriving: dict[int, dict[int, list[bytes]]] = {}
        for port, read in enumerate(plan.reads):
            rows = changes.get(read.topic)
            if rows is not None and rows.num_rows:
                linear = duck.run(read.sql, **{CHANGES: rows.select(list(read.columns))})
                for bucket, blob in pack_by_key(linear, read.key, plan.buckets):
                    arriving.setdefault(bucket, {}).setdefault(port, []).append(blob)
        answers: list[pa.Table] = []
        for number, level in enumerate(plan.levels):
            following: dict[int, dict[int, list[bytes]]] = {}
            for bucket, ports in sorted(arriving.items()):
                tables = {port: unpack(blobs) for port, blobs in ports.items()}
                answer = level.operator.step(self._states[number, bucket], tables)
                if level.sql is not None:
                    answer = duck.run(level.sql, **{CHANGES: answer})
                if number == len(plan.levels) - 1:
                    answers.append(answer)
                else:
                    for target, blob in pack_by_key(answer, level.key, plan.buckets):
                        following.setdefault(target, {}).setdefault(0, []).append(blob)
            arriving = following
        return pa.concat_tables([self._nothing(), *answers])
