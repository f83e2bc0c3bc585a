"""A plan run in memory, bucket by bucket, as Spark would run it but without Spark: for tests of operators and plans."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headwater.process import duck
from headwater.process.keyed.arrangement import Arrangement, Manifest
from headwater.process.keyed.bucket import ANSWER, DEAD, Ways, sent
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.spreading import WHOLE, lies_within, united, within
from headwater.process.keyed.through import Places, deliver, through, ways_of
from headwater.process.plan import Plan
from headwater.records import OFFSET, PARTITION, WEIGHT


class PlanBench:
    """`push` is one batch. `again` runs the same batch a second time on the state before it, as after a crash.

    Some batches run bucket by bucket, as under Spark, others with the buckets of a level as one, as those of few
    records do: state goes from one form to the other and back.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._data: dict[str, pa.Buffer] = {}
        self._states = self._fresh()
        self._before = self._fresh()
        self._last: tuple[Mapping[str, pa.Table], int | None, bool, bool] = ({}, None, False, False)
        self.output: list[pa.Table] = []
        self.dead: list[pa.Table] = []
        """Dead letters, batch by batch."""

    def push(self, changes: Mapping[str, pa.Table], watermark: int | None = None) -> pa.Table:
        """Changes by topic, in the columns as they are stored (a table's with weights), and the watermark in µs.

        For a read with metadata the changes have the columns `_partition` and `_offset`. The answer is kept too.
        """
        self._last = changes, watermark, not self.output, len(self.output) % 3 != 1
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
        return {(level, bucket): MemoryState(self._data) for level in levels for bucket in buckets}

    def _nothing(self) -> pa.Table:
        return self.plan.schema.append(pa.field(WEIGHT, pa.int64())).empty_table()

    def _run(
        self, changes: Mapping[str, pa.Table], watermark: int | None, first: bool, unite: bool
    ) -> tuple[pa.Table, list[pa.Table]]:
        wholes: dict[int, MemoryState] = {}

        def state(level: int, bucket: int) -> MemoryState:
            if bucket != WHOLE:
                return self._states[level, bucket]
            return wholes.setdefault(level, self._whole(level))

        arriving = self._read(changes, ways_of(self.plan, unite=unite))
        leaves = through(self.plan, arriving, state, watermark=watermark, first=first, unite=unite)
        for level, whole in wholes.items():
            self._spread(level, whole)
        answers = [table for _, ports in sorted(leaves.items()) for table in ports.get(ANSWER, ())]
        dead = [table for _, ports in sorted(leaves.items()) for table in ports.get(DEAD, ())]
        return pa.concat_tables([self._nothing(), *answers]), dead

    def _whole(self, level: int) -> MemoryState:
        """All buckets of a level as one."""
        parts = [self._states[level, bucket].arrangements for bucket in range(self.plan.buckets)]
        whole = MemoryState(self._data)
        for name, shape in {name: each.shape for part in parts for name, each in part.items()}.items():
            manifests = [part[name].manifest if name in part else Manifest() for part in parts]
            for bucket, manifest in enumerate(manifests):
                assert lies_within(manifest, bucket, self.plan.buckets), "rows are in their bucket"
            whole.arrangements[name] = Arrangement(shape, whole, united(manifests))
        return whole

    def _spread(self, level: int, whole: MemoryState) -> None:
        for bucket in range(self.plan.buckets):
            state = self._states[level, bucket]
            for name, each in whole.arrangements.items():
                share = within(each.manifest, bucket, self.plan.buckets, whole)
                state.arrangements[name] = Arrangement(each.shape, state, share)

    def _read(self, changes: Mapping[str, pa.Table], ways: Ways) -> Places:
        arriving: Places = {}
        for read in self.plan.reads:
            rows = changes.get(read.topic)
            if rows is not None and rows.num_rows:
                columns = [*read.columns, *((PARTITION, OFFSET) if read.metadata else ())]
                for send in read.sends:
                    deliver(sent(send, rows.select(columns), ways(send)), arriving)
        return arriving
