"""One batch of one level: watermarks that go along, dead letters, and what a step leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.log.position import Epoch
from headwater.process.keyed import inspect
from headwater.process.keyed.arrangement import Arrangement, Manifest, Shape
from headwater.process.keyed.bucket import DEAD, WATERMARK, Arrived, Blob, pack_watermark, run_batch
from headwater.process.keyed.chunkfiles import ChunkFiles
from headwater.process.keyed.deadletters import SCHEMA, DeadLetter, to_table
from headwater.process.keyed.keeping import Kept
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.merging import SMALL_FANOUT
from headwater.process.keyed.operator import Answer, State
from headwater.process.keyed.packing import pack
from headwater.process.keyed.pending import PendingChunks
from headwater.process.keyed.runner import arrived, passed_on
from headwater.process.plan import OUT, Node, Plan, Send
from headwater.testing import PlanBench

ROWS = pa.schema([("k", pa.int64()), ("_weight", pa.int64())])
SHAPE = Shape(ROWS, ("k",), ("_weight",), compact=True)


@dataclass(frozen=True)
class Told:
    """Notes what it is told."""

    dead: bool = False
    marks: list[int | None] = field(default_factory=list)
    revision = 1

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        self.marks.append(watermark)
        letters = to_table([DeadLetter({"k": 1}, "no", 5)], "facts")
        return Answer(ROWS.empty_table(), letters if self.dead else None)


def plan(*operators: Any) -> Plan:
    """One after the other."""
    last = len(operators) - 1
    sends = [Send(None, ("k",), OUT if number == last else number + 1) for number in range(len(operators))]
    nodes = tuple(Node(operator, level, (sends[level],)) for level, operator in enumerate(operators))
    return Plan("v", "", (), nodes, ROWS.remove(1), ("k",), buckets=3)


def test_the_watermark_reaches_every_bucket_of_every_level_also_without_changes() -> None:
    operators = Told(), Told(), Told()
    bench = PlanBench(plan(*operators))
    bench.push({}, watermark=17)
    bench.push({})
    assert [operator.marks for operator in operators] == [[17] * 3] * 3


def test_of_several_watermarks_the_smallest_counts() -> None:
    blobs = {WATERMARK: [pack_watermark(9), pack_watermark(-4), pack_watermark(12)]}
    came = arrived(plan(Told()), 0, blobs)
    assert (came.ports, came.watermark, came.first) == ({}, -4, False)


def test_dead_letters_leave_by_a_port_of_their_own_and_pass_later_levels() -> None:
    (rows,) = run_batch(plan(Told(dead=True)), 0, 2, MemoryState(), Arrived({0: some(1)}))
    assert (rows.bucket, rows.port) == (2, DEAD)
    assert rows.rows.to_pylist() == [
        {"record": '{"k": 1}', "error": "no", "topic": "facts", "partition": 0, "offset": 5}
    ]
    assert rows.rows.schema == SCHEMA
    data = pack(rows.rows)
    assert list(passed_on(plan(Told(), Told()), 1, 2, {DEAD: [data]})) == [Blob(2, DEAD, data)]


def some(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "_weight": [1] * len(keys)}, schema=ROWS)


def test_a_chunk_that_a_step_merges_away_again_is_never_written(tmp_path: Path) -> None:
    manifest = Manifest()
    for number in range(SMALL_FANOUT):  # the last one fills the tier
        pending = PendingChunks(ChunkFiles(tmp_path))
        arranged = Arrangement(SHAPE, pending, manifest)
        arranged.add(some(number))
        manifest = arranged.manifest
        pending.settle()
    written = {file.name for file in tmp_path.iterdir()}
    assert len(written) == SMALL_FANOUT, "all runs but the last, and then the one they were merged into"
    assert {id.partition(".")[0] for id in manifest.ids} < written, "the others stay until the batch is appended"


def test_each_bucket_tells_how_much_state_it_holds(tmp_path: Path) -> None:
    assert inspect.summary(tmp_path) == []
    arranged = Arrangement(SHAPE, MemoryState())
    kept = Kept(tmp_path, "by_page@1")
    for number in range(3):
        arranged.add(some(number, number + 10))
        manifests = {"0 groups": arranged.manifest, "0 empty": Manifest()}
        kept.write(number + 8, Epoch(1), plan(Told()), {"0-2": manifests, "0-1": {}})
    empty, groups = inspect.summary(tmp_path)
    assert empty == {
        "operator": "0 Told",
        "level": 0,
        "bucket": 2,
        "arrangement": "empty",
        "rows": 0,
        "bytes": 0,
        "chunks": 0,
        "runs": 0,
    }
    assert (groups["arrangement"], groups["rows"], groups["chunks"], groups["runs"]) == ("groups", 6, 3, 3)
    assert groups["bytes"] == sum(ref.bytes for ref in arranged.manifest.refs)


def test_a_run_that_was_overtaken_takes_only_what_is_older_than_its_own(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "by_page@1")
    for sequence, epoch in ((6, 1), (7, 1), (8, 2), (10, 2)):
        kept.write(sequence, Epoch(epoch), plan(Told()), {})
    kept.settle(7, Epoch(1), [{}], {})
    assert {path.name for path in (tmp_path / "kept").glob("*.json")} == {"7-1.json", "8-2.json", "10-2.json"}
    kept.settle(10, Epoch(2), [{}], {})
    assert {path.name for path in (tmp_path / "kept").glob("*.json")} == {"10-2.json"}
