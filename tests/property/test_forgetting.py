"""With `retain`, state keeps what can still matter and no more; views remain the answer over all that was not late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.log import TopicSpec
from headwater.process.keyed.arrangement import GONE, Arrangement, ChunkRef
from headwater.process.keyed.expiry import Expiry
from headwater.process.keyed.memory import MemoryState
from headwater.process.keyed.weighing import present
from headwater.process.sql.planner import plan_view
from headwater.records import WEIGHT, schema_of
from headwater.testing import PlanBench
from tests.property.changes import answer
from tests.property.test_prefix_rule import found, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RETAIN = 7 * SECOND
STEP = 5 * SECOND
"""By how much event time goes on in a batch."""
COLUMNS = schema_of({"id": "int64", "k": "int64", "v": "int64", "at": "timestamp"})
INPUTS = {name: TopicSpec(name, COLUMNS, time="at", partitions=1) for name in ("a", "b")}

BETWEEN = "a.at BETWEEN b.at - INTERVAL '10 seconds' AND b.at + INTERVAL '20 seconds'"
SESSIONS = "SESSION(a, at, k, INTERVAL '2 seconds')"
WINDOWS_A, WINDOWS_B = (f"TUMBLE({name}, at, INTERVAL '10 seconds')" for name in INPUTS)
VIEWS = {
    "join": f"SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k AND {BETWEEN}",
    "join-in-where": """SELECT a.id, b.id AS other FROM a, b
                        WHERE a.k = b.k AND b.at > a.at AND b.at - INTERVAL 9 SECOND < a.at""",
    "left-join": f"SELECT a.id, a.at, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND {BETWEEN}",
    "right-join": f"SELECT a.id, b.at, b.id AS other FROM a RIGHT JOIN b ON a.k = b.k AND {BETWEEN}",
    "full-join": f"SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.k = b.k AND {BETWEEN}",
    "semi-join": f"SELECT a.id, a.v FROM a SEMI JOIN b ON a.k = b.k AND {BETWEEN}",
    "anti-join": f"SELECT a.id, a.v FROM a ANTI JOIN b ON a.k = b.k AND {BETWEEN}",
    "self-join": """SELECT a.id, c.id AS other
                    FROM a JOIN a AS c ON a.k = c.k AND c.at > a.at AND c.at <= a.at + INTERVAL '6 seconds'""",
    "join-without-equality": f"SELECT a.id, b.id AS other FROM a JOIN b ON {BETWEEN}",
    "counted-join": f"""SELECT a.k, tumble(a.at, '10 seconds') AS w, count(*) AS n
                        FROM a JOIN b ON a.k = b.k AND {BETWEEN} GROUP BY a.k, tumble(a.at, '10 seconds')""",
    "join-of-windows": f"""SELECT x.k, x.window_start, x.n, y.m
                           FROM (SELECT k, window_start, count(*) AS n FROM {WINDOWS_A} GROUP BY ALL) x
                           LEFT JOIN (SELECT window_start, max(v) AS m FROM {WINDOWS_B} GROUP BY ALL) y
                           ON x.window_start = y.window_start""",
    "as-of": "SELECT a.id, b.v FROM a ASOF JOIN b ON a.k = b.k AND a.at >= b.at",
    "as-of-strictly": "SELECT a.id, b.v FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.at > b.at",
    "sessions": f"SELECT k, window_start, window_end, count(*) AS n FROM {SESSIONS} GROUP BY ALL",
    "sessions-by-start": """SELECT k, session(at, '2 seconds') AS s, sum(v) AS v
                            FROM a GROUP BY k, session(at, '2 seconds')""",
    "sessions-of-records": f"SELECT id, k, window_start FROM {SESSIONS}",
    "last-of-a-session": f"""SELECT id, k, window_end FROM {SESSIONS}
                             QUALIFY row_number() OVER (PARTITION BY k, window_start ORDER BY at DESC, id) = 1""",
    "first-of-a-window": f"""SELECT id, window_start, row_number() OVER (PARTITION BY window_start ORDER BY v, id) AS r
                             FROM {WINDOWS_A} QUALIFY r <= 2""",
    "list-of-a-window": f"SELECT k, window_start, list(v ORDER BY v) AS l FROM {WINDOWS_A} GROUP BY ALL",
}
NOT_BOUNDED = {"counted-join"}
"""The window over a joined row's time is not known to be past."""


@dataclass
class Stream:
    """Records out of order, some of them late; what is admitted, and how far event time has come."""

    chance: random.Random
    records: list[dict[str, Any]] = field(default_factory=list)
    reached: datetime | None = None
    number: int = 0
    late: int = 0

    def batch(self, base: datetime) -> pa.Table:
        came = []
        for _ in range(self.chance.randrange(2, 7)):
            self.number += 1
            at = base + SECOND * self.chance.choice([-40, -9, -6, -4, -2, -1, 0, 0, 1, 1, 2, 3])
            row = {"id": self.number, "k": self.chance.randrange(3), "v": self.chance.randrange(5), "at": at}
            if self.reached is not None and at < self.reached - RETAIN:
                self.late += 1
            else:
                came.append(row)
            self.reached = at if self.reached is None else max(at, self.reached)
        self.records += came
        return pa.Table.from_pylist(came, COLUMNS)


def _run(sql: str, seed: int, batches: int) -> Iterator[tuple[PlanBench, dict[str, pa.Table]]]:
    chance = random.Random(seed)
    streams = {name: Stream(chance) for name in INPUTS}
    retain = RETAIN // timedelta(microseconds=1)
    bench = PlanBench(replace(plan_view("v", sql, INPUTS, retain=retain), buckets=2))
    read = [read.topic for read in bench.plan.reads]
    for number in range(batches):
        came = {name: stream.batch(START + number * STEP) for name, stream in streams.items()}
        reached = min(each for name, stream in streams.items() if name in read and (each := stream.reached) is not None)
        bench.push(came, (reached - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
        yield bench, {name: pa.Table.from_pylist(stream.records, COLUMNS) for name, stream in streams.items()}
    assert all(stream.late for stream in streams.values()), "some records must be late, or nothing is tried"


def _kept(bench: PlanBench) -> int:
    """Rows of state that count; those that cancel each other are merged away in time."""
    plan = bench.plan
    states = [bench.state(level, bucket) for level in range(plan.levels) for bucket in range(plan.buckets)]
    return sum(_net(state, each) for state in states for each in state.arrangements.values())


def _net(state: MemoryState, arrangement: Arrangement) -> int:
    parts = [_meant(state, ref) for ref in arrangement.manifest.refs]
    rows = pa.concat_tables([arrangement.shape.stored.empty_table(), *parts])
    if arrangement.shape.newest:
        newest = arrangement.shape.newest_of(rows)
        return newest.num_rows - int(newest[GONE].to_numpy().sum())
    return present(rows).num_rows if WEIGHT in rows.schema.names else rows.num_rows


def _meant(state: MemoryState, ref: ChunkRef) -> pa.Table:
    """Of a chunk of which some rows are taken away already, the others."""
    chunk = state.load(ref)
    low, high = ref.within(chunk.hashes)
    return chunk.rows.slice(low, high - low)


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_forgotten_is_not_missed(name: str) -> None:
    for seed in seeds():
        print(f"seed {seed}")  # noqa: T201
        _follow(name, seed)


def _follow(name: str, seed: int) -> None:
    for bench, held in _run(VIEWS[name], seed, 12):
        assert bench.again().equals(bench.output[-1])
        assert found(bench) == answer(bench.plan.oracle, held)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VIEWS if name not in NOT_BOUNDED])
def test_state_does_not_grow_with_what_is_past(name: str) -> None:
    sizes = [_kept(bench) for bench, _ in _run(VIEWS[name], 1, 30)]
    assert max(sizes[15:]) < 1.3 * max(sizes[:15]), "of 30 batches about as much as of 15"


def test_the_rule_catches_state_that_is_forgotten_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Expiry.take
    monkeypatch.setattr(Expiry, "take", lambda self, watermark: taken(self, watermark + 10**8))
    monkeypatch.setattr("headwater.process.keyed.join.after", lambda times, span: times)
    with pytest.raises(AssertionError):
        _follow("join", 1)
