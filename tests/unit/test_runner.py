"""A level as Spark calls it, and the state that goes with the view's appends, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import CheckpointLost, Fenced
from headwater.log import Topic, TopicSpec
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Snapshot
from headwater.process.job import Job, dump_jobs
from headwater.process.keyed.bucket import ANSWER, Blob, sent
from headwater.process.keyed.inspect import summary
from headwater.process.keyed.offsets import Entry, to_offset
from headwater.process.keyed.packing import bucket_labels, pack, unpack
from headwater.process.keyed.runner import LevelRunner
from headwater.process.keyed.sink import BlobWriter
from headwater.process.keyed.travel import batch_of
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64"}), key=("user_id",), partitions=1)
SQL = "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"


class Run:
    """Batches of some views in one query, each a click of user 1."""

    def __init__(self, log: hw.Log, folder: Path, names: Sequence[str]) -> None:
        self._clicks = Topic(log, log.create(CLICKS))
        self._log, self._folder = log, folder
        self._entries: dict[str, Entry] = {}
        self.jobs = [self._job(name) for name in names]

    def _job(self, name: str) -> Job:
        plan = plan_view(name, SQL, {"clicks": CLICKS})
        self._log.create(TopicSpec(name, plan.schema, key=plan.key, kind="table", partitions=plan.buckets))
        own = str(self._folder / name)
        return Job(name, self._log.url, self._log.begin(name), name, own, str(self._folder), ("clicks",), plan=plan)

    def plan(self, batch: int, *names: str) -> None:
        """As Spark writes it down before the batch (step 1)."""
        self._clicks.append([{"user_id": 1}])
        end = self._log.snapshot(["clicks"]).position
        for name in names or [job.name for job in self.jobs]:
            before = self._entries[name].end.position if name in self._entries else Position()
            self._entries[name] = Entry(before, Snapshot(AppendNumber(1), end))
        offsets = self._folder / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(to_offset(self._entries))}")

    def compute(self) -> list[pa.RecordBatch]:
        return list(
            LevelRunner(dump_jobs(self.jobs), 0)(iter([self._arriving(view) for view in range(len(self.jobs))]))
        )

    def _arriving(self, view: int) -> pa.RecordBatch:
        plan = self.jobs[view].keyed
        (send,) = plan.reads[0].sends
        (rows,) = sent(send, pa.table({"user_id": pa.array([1], pa.int64())}), plan.buckets)
        return batch_of(view, [Blob(rows.bucket, rows.port, pack(rows.rows))], bucket_labels(plan.buckets))

    def append(self, batch: int, computed: Sequence[pa.RecordBatch]) -> None:
        writer = BlobWriter(self.jobs)
        writer.commit([writer.write(iter(computed))], batch)

    def batch(self, number: int) -> None:
        self.plan(number)
        self.append(number, self.compute())

    def lists(self, name: str) -> list[str]:
        return sorted(file.name for file in (self._folder / name / "kept").glob("*.json"))

    def chunks(self, name: str) -> set[str]:
        return {file.name for file in (self._folder / name / "kept" / "chunks").iterdir()}

    def counted(self, name: str) -> int:
        rows = Topic(self._log, self._log.topic(name)).read().to_pylist()
        return sum(int(row["n"]) * int(row["_weight"]) for row in rows)


@pytest.fixture
def run(log: hw.Log, tmp_path: Path) -> Run:
    return Run(log, tmp_path / "query", ["one", "two"])


def said(batches: Sequence[pa.RecordBatch]) -> list[int]:
    ports = [row for batch in batches for row in batch.to_pylist() if row["port"] == ANSWER]
    return [row["n"] for each in ports for row in unpack([each["data"]]).to_pylist()]


def test_each_view_has_its_own_state_which_goes_on_with_its_appends(run: Run) -> None:
    for number in range(12):
        run.batch(number)
    assert run.counted("one") == run.counted("two") == 12
    assert run.lists("one") == run.lists("two") == [f"11-{run.jobs[0].producer.epoch}.json"]
    (told,) = summary(Path(run.jobs[0].folder))
    assert (told["operator"], told["arrangement"], told["level"]) == ("0 Aggregate", "groups", 0)
    assert told["chunks"] == len(run.chunks("one")) > 0, "what was merged away is gone"


def test_a_batch_that_was_not_appended_runs_again_on_the_state_before_it(run: Run) -> None:
    run.batch(0)
    run.plan(1)
    assert said(run.compute()) == said(run.compute()) == [1, 2, 1, 2]
    run.append(1, run.compute())
    assert run.counted("one") == 2


def test_a_batch_that_was_appended_has_nothing_left_to_do(run: Run) -> None:
    run.batch(0)
    run.plan(1)
    computed = run.compute()
    run.append(1, computed)
    before = run.chunks("one")
    assert run.compute() == []
    run.append(1, [])
    run.append(1, computed)  # also by a task that had computed it before
    assert (run.counted("one"), run.chunks("one")) == (2, before)


def test_state_that_an_overtaken_run_lists_never_counts(log: hw.Log, run: Run) -> None:
    run.batch(0)
    run.plan(1)
    old = run.jobs
    late = run.compute()
    run.jobs = [replace(job, producer=log.begin(job.producer.name)) for job in old]
    run.append(1, run.compute())
    assert old[0].kept is not None
    old[0].kept.write(1, old[0].producer.epoch, old[0].keyed, {})
    with pytest.raises(Fenced):
        BlobWriter(old).write(iter(late))
    run.batch(2)
    assert run.counted("one") == run.counted("two") == 3


def test_what_a_crash_left_behind_is_swept_and_what_counts_stays(log: hw.Log, run: Run) -> None:
    run.batch(0)
    kept = run.jobs[0].kept
    assert kept is not None
    before = run.chunks("one")
    run.plan(1)
    run.compute()  # writes chunks, and is not appended
    kept.write(1, run.jobs[0].producer.epoch, run.jobs[0].keyed, {})
    assert run.chunks("one") > before
    kept.sweep(log.covered("one"))
    assert (run.chunks("one"), len(run.lists("one"))) == (before, 1)
    run.append(1, run.compute())
    assert run.counted("one") == 2


@pytest.mark.parametrize("lost", ["list", "chunk", "half a chunk"])
def test_state_that_is_not_there_is_told(log: hw.Log, run: Run, lost: str) -> None:
    run.batch(0)
    kept = Path(run.jobs[0].folder) / "kept"
    (file,) = kept.glob("*.json") if lost == "list" else (kept / "chunks").iterdir()
    if lost == "half a chunk":
        file.write_bytes(file.read_bytes()[:50])
    else:
        file.unlink()
    job = run.jobs[0]
    assert job.kept is not None
    with pytest.raises(CheckpointLost, match="its state is"):
        job.kept.verify(log.covered("one"))
    with pytest.raises(CheckpointLost, match="its state is"):
        job.verify(log)
    run.jobs[1].verify(log)
