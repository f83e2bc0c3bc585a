"""The embedded log against a plain model: lists in memory, under any order of acts, upkeep and reopening included."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.errors import Fenced, Missed, ProgressBroken, VersionConflict
from headwater.log import Producer, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.position import AppendNumber
from headwater.records import schema_of

PARTITIONS = 2
SCHEMA = schema_of({"k": "int64", "v": "string"})
values = st.lists(st.tuples(st.integers(0, 5), st.text(max_size=6)), min_size=1, max_size=5)
partitions = st.integers(0, PARTITIONS - 1)


class LogModel(RuleBasedStateMachine):
    """`records[partition]` is the model of a stream: (offset, key, value); `start` what retention has left."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.now = 1_000_000
        self.log = EmbeddedLog(self.folder, clock=lambda: self.now)
        self.records: list[list[tuple[int, int, str]]] = [[] for _ in range(PARTITIONS)]
        self.ends = [0] * PARTITIONS
        self.starts = [0] * PARTITIONS
        self.appended_at: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.boundaries: list[tuple[int, ...]] = [(0,) * PARTITIONS]
        self.sequences: dict[str, dict[int, AppendNumber]] = {"a": {}, "b": {}}
        self.epochs = {"a": 0, "b": 0}
        self.versions: dict[int, int] = {}

    @initialize()
    def make(self) -> None:
        spec = TopicSpec("t", SCHEMA, key=("k",), partitions=PARTITIONS, versioned=True)
        self.topic = Topic(self.log, self.log.create(spec))

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    def _appended(self, partition: int, rows: list[tuple[int, str]]) -> None:
        for key, value in rows:
            self.records[partition].append((self.ends[partition], key, value))
            self.ends[partition] += 1
            self.appended_at[partition].append(self.now)
            self.versions[key] = self.versions.get(key, 0) + 1
        self.boundaries.append(tuple(self.ends))

    @staticmethod
    def _rows(rows: list[tuple[int, str]]) -> list[dict[str, Any]]:
        return [{"k": key, "v": value} for key, value in rows]

    @rule(partition=partitions, rows=values)
    def append(self, partition: int, rows: list[tuple[int, str]]) -> None:
        done = self.topic.append(self._rows(rows), partition=partition)
        self._appended(partition, rows)
        assert done.offset("t", partition) == self.ends[partition]

    @rule(name=st.sampled_from("ab"), sequence=st.integers(0, 6), partition=partitions, rows=values)
    def append_as_producer(self, name: str, sequence: int, partition: int, rows: list[tuple[int, str]]) -> None:
        known = self.sequences[name]
        producer = Producer(name, self.epochs[name])  # type: ignore[arg-type]

        def act() -> Any:
            return self.topic.append_parts(self._rows(rows), partition=partition, producer=producer, sequence=sequence)

        if sequence in known:
            again = act()
            assert (again.repeated, again.number) == (True, known[sequence])
        elif known and sequence < max(known):
            with pytest.raises(ProgressBroken):
                act()
        else:
            known[sequence] = act().number
            self._appended(partition, rows)

    @rule(name=st.sampled_from("ab"))
    def begin(self, name: str) -> None:
        self.epochs[name] = self.log.begin(name).epoch

    @precondition(lambda self: self.epochs["a"] > 0)
    @rule(rows=values)
    def append_as_zombie(self, rows: list[tuple[int, str]]) -> None:
        with pytest.raises(Fenced):
            self.topic.append(self._rows(rows), producer=Producer("a", self.epochs["a"] - 1), sequence=99)  # type: ignore[arg-type]

    @rule(key=st.integers(0, 5), believed=st.integers(0, 4), partition=partitions)
    def append_if_version(self, key: int, believed: int, partition: int) -> None:
        rows = [(key, "conditional")]
        if self.versions.get(key, 0) == believed:
            self.topic.append(self._rows(rows), partition=partition, expect={(key,): believed})
            self._appended(partition, rows)
        else:
            with pytest.raises(VersionConflict):
                self.topic.append(self._rows(rows), partition=partition, expect={(key,): believed})

    @rule(seconds=st.integers(1, 50))
    def wait(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @rule()
    def roll_up(self) -> None:
        self.log.upkeep.roll_up("t", least_chunks=2)

    @rule()
    def collect(self) -> None:
        self.log.upkeep.collect_garbage(grace_s=-1)

    @rule(keep_s=st.integers(10, 60))
    def retain(self, keep_s: int) -> None:
        self.log.alter("t", settings=Settings(retain_s=keep_s))
        moved = self.log.upkeep.retain("t")
        for partition, start in moved.items():
            assert all(at < self.now - keep_s * 1_000_000 for at in self.appended_at[partition][:start])
            self.starts[partition] = start

    @rule(key=st.integers(0, 5))
    def forget(self, key: int) -> None:
        self.log.upkeep.forget("t", keys=[{"k": key}])
        self.records = [[row for row in own if row[1] != key] for own in self.records]
        self.versions.pop(key, None)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = EmbeddedLog(self.folder, clock=lambda: self.now)
        self.topic = Topic(self.log, self.log.topic("t"))

    @invariant()
    def reads_what_the_model_has(self) -> None:
        if not hasattr(self, "topic"):
            return
        for partition in range(PARTITIONS):
            start, end = self.starts[partition], self.ends[partition]
            rows = [
                (row["_offset"], row["k"], row["v"])
                for batch in self.log.scan("t", partition, start, end + 5, metadata=True)
                for row in batch.to_pylist()
            ]
            assert rows == [row for row in self.records[partition] if row[0] >= start]
            if start > 0:
                with pytest.raises(Missed):
                    list(self.log.scan("t", partition, start - 1, end))
        last = len(self.boundaries) - 1
        for number in {last, last // 2}:
            found = self.log.position_at("t", AppendNumber(number))
            for partition, start in enumerate(self.starts):
                assert found[partition] == max(self.boundaries[number][partition], start) or start > 0


LogModel.TestCase.settings = settings(stateful_step_count=25, deadline=None)
TestLogModel = LogModel.TestCase
