"""Latest and fold on Spark, through `Pipeline`, against plain Python over the log."""

from __future__ import annotations

import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.process.keyed.fold import Fold
from headwater.process.keyed.inspect import summary
from headwater.process.keyed.lane import KeyedLane
from headwater.process.keyed.latest import Latest
from headwater.process.pipeline import Pipeline
from headwater.process.plan import CHANGES, Node, Plan, Read, Send
from headwater.records import DELETED, OFFSET, PARTITION, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

METADATA = [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]


class Run:
    """One pipeline over one topic, and its view."""

    def __init__(self, plan: Plan, log: hw.Log, folder: Path, spark: SparkSession, until: Callable[..., None]) -> None:
        self.plan, self._log, self._folder, self._spark, self._until = plan, log, folder, spark, until
        self.pipeline: Pipeline | None = None

    @property
    def home(self) -> Path:
        return Pipeline(KeyedLane(self.plan), self._log, self._folder).folder

    def start(self) -> None:
        self.pipeline = Pipeline(KeyedLane(self.plan), self._log, self._folder)
        self.pipeline.prepare()
        self.pipeline.start(self._spark)

    def stop(self) -> None:
        if self.pipeline is not None:
            self.pipeline.stop()

    def catch_up(self) -> None:
        goal = self._log.snapshot([read.topic for read in self.plan.reads]).position

        def covered() -> bool:
            failure = self.pipeline.failure() if self.pipeline else None
            if failure is not None:
                raise failure
            done = self._log.covered(self.pipeline.producer if self.pipeline else "")
            return done is not None and done.progress.end.covers(goal)

        self._until(covered, within_s=240, what="the pipeline's covering of its inputs")

    def view(self) -> list[tuple[Any, ...]]:
        weights: dict[tuple[Any, ...], int] = {}
        for row in Topic(self._log, self._log.topic(self.plan.view)).read().to_pylist():
            values = tuple(row[name] for name in self.plan.schema.names)
            weights[values] = weights.get(values, 0) + row["_weight"]
        assert set(weights.values()) <= {0, 1}, "a row is there once, or not at all"
        return sorted(values for values, weight in weights.items() if weight)

    def run_last_batch_again(self) -> None:
        """As after a crash between step 3 and step 6: the rows stand in the log, Spark does not know it was done."""
        self.stop()
        commits = self.home / "checkpoint" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        self.start()


@pytest.fixture
def running(
    log: hw.Log, tmp_path: Path, spark: SparkSession, until: Callable[..., None]
) -> Iterator[Callable[[Plan], Run]]:
    made: list[Run] = []

    def start(plan: Plan) -> Run:
        made.append(Run(plan, log, tmp_path / "pipelines", spark, until))
        made[-1].start()
        return made[-1]

    yield start
    for run in made:
        run.stop()


def plan_of(view: str, spec: TopicSpec, operator: Any, schema: pa.Schema) -> Plan:
    columns = ", ".join([*spec.stored.names, PARTITION, OFFSET])
    send = Send(f"SELECT {columns} FROM {CHANGES}", spec.key, node=0)
    read = Read(spec.name, tuple(spec.stored.names), (send,), metadata=True)
    return Plan(view, "", (read,), (Node(operator, 0, (Send(None, spec.key),)),), schema, spec.key)


def test_upserts_become_rows_through_a_batch_that_runs_twice(log: hw.Log, running: Callable[[Plan], Run]) -> None:
    chance = random.Random(11)
    schema = schema_of({"id": "int64", "name": "string", "score": "float64"})
    spec = log.create(TopicSpec("users", schema, key=("id",), kind="table", upsert=True))
    users, model = Topic(log, spec), {}

    def change(count: int) -> None:
        for _ in range(count):
            id = chance.randrange(60)
            if chance.random() < 0.25:
                users.delete([{"id": id}])
                model.pop(id, None)
            else:
                model[id] = (id, f"user {chance.randrange(5)}", chance.choice([0.1, 0.1 + 0.2, -0.0]))
                users.upsert([dict(zip(schema.names, model[id], strict=True))])

    change(80)
    run = running(plan_of("people", spec, Latest(pa.schema([*spec.stored, *METADATA]), ("id",)), schema))
    run.catch_up()
    assert run.view() == sorted(model.values())
    change(60)
    run.catch_up()
    run.run_last_batch_again()
    change(40)
    run.catch_up()
    assert run.view() == sorted(model.values())
    assert DELETED not in run.plan.schema.names
    told = summary(run.home)
    assert {(each["level"], each["operator"], each["arrangement"]) for each in told} == {(0, "0 Latest", "rows")}
    assert {each["bucket"] for each in told} == set(range(run.plan.buckets))
    assert sum(each["rows"] for each in told) >= len(model)


USERS_FILE = """
STEP = 1

def add(state, record):
    return {"n": state["n"] + STEP, "total": state["total"] + record["x"], "last": record["word"]}

def fails(state, record):
    return {"n": 1 // (record["k"] - 3), "total": 0.0, "last": None}
"""
STATE = schema_of({"n": "int64", "total": "float64", "last": "string"})


@pytest.fixture
def users_module(tmp_path: Path) -> Iterator[types.ModuleType]:
    """A file like the one `headwater run` is given: this process has it as a module, workers cannot import it."""
    file = tmp_path / "a_users_shop.py"
    file.write_text(USERS_FILE)
    module = types.ModuleType("a_users_shop")
    module.__file__ = str(file)
    exec(compile(USERS_FILE, str(file), "exec"), module.__dict__)
    sys.modules["a_users_shop"] = module
    yield module
    del sys.modules["a_users_shop"]


def test_a_users_function_folds_the_records_of_each_key_in_order(
    log: hw.Log, running: Callable[[Plan], Run], users_module: types.ModuleType
) -> None:
    chance = random.Random(5)
    spec = log.create(TopicSpec("facts", schema_of({"k": "int64", "x": "float64", "word": "string"}), key=("k",)))
    facts, model = Topic(log, spec), {}

    def append(count: int) -> None:
        rows = [
            {"k": chance.randrange(20), "x": chance.choice([0.1, 0.3, 1e15]), "word": chance.choice("abc")}
            for _ in range(count)
        ]
        facts.append(rows)
        for row in rows:
            _, n, total, _ = model.get(row["k"], (row["k"], 0, 0.0, None))
            model[row["k"]] = (row["k"], n + 1, total + row["x"], row["word"])

    operator = Fold(
        pa.schema([*spec.stored, *METADATA]),
        ("k",),
        STATE,
        {"n": 0, "total": 0.0},
        users_module.add,
        pipeline="sums",
        topic="facts",
    )
    append(150)
    run = running(plan_of("sums", spec, operator, pa.schema([spec.schema.field("k"), *STATE])))
    run.catch_up()
    assert run.view() == sorted(model.values()), "float sums in the order of the log, to the last bit"
    append(90)
    run.catch_up()
    run.run_last_batch_again()
    append(50)
    run.catch_up()
    assert run.view() == sorted(model.values())


def test_a_function_that_fails_stops_the_pipeline_with_its_own_line(
    log: hw.Log, running: Callable[[Plan], Run], users_module: types.ModuleType, until: Callable[..., None]
) -> None:
    spec = log.create(TopicSpec("facts", schema_of({"k": "int64", "x": "float64", "word": "string"}), key=("k",)))
    Topic(log, spec).append([{"k": k, "x": 1.0, "word": "a"} for k in range(6)])
    operator = Fold(
        pa.schema([*spec.stored, *METADATA]),
        ("k",),
        STATE,
        {"n": 0, "total": 0.0},
        users_module.fails,
        pipeline="fails",
        topic="facts",
    )
    run = running(plan_of("fails", spec, operator, pa.schema([spec.schema.field("k"), *STATE])))
    until(lambda: run.pipeline and run.pipeline.failure(), within_s=240, what="the failure")
    assert run.pipeline is not None
    told = str(run.pipeline.failure())
    assert re.search(r"its function failed on the record at offset \d of 'facts', partition \d, key k=3: Zero", told)
    assert "ZeroDivisionError: integer division or modulo by zero" in told
    assert f"{users_module.__file__}:8 in fails: return" in told
