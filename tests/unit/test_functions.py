"""A user's functions inside a plan: what counts in the fingerprint, and how they reach a worker."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.position import Epoch
from headwater.log.protocol import Producer
from headwater.process.job import Job
from headwater.process.keyed.fold import Fold
from headwater.process.lineage import fingerprint_of
from headwater.process.plan import CHANGES, Node, Plan, Read, Send

INPUT = pa.schema([("k", pa.int64()), ("_partition", pa.int32()), ("_offset", pa.int64())])
STATE = pa.schema([("n", pa.int64())])


def plan(function: Callable[..., Any]) -> Plan:
    operator = Fold(INPUT, ("k",), STATE, {"n": 0}, function)
    read = Read("facts", ("k",), (Send(f"SELECT * FROM {CHANGES}", ("k",), node=0),), metadata=True)
    node = Node(operator, 0, (Send(None, ("k",)),))
    return Plan("v", "", (read,), (node,), pa.schema([("k", pa.int64()), *STATE]), ("k",))


def mark(plan: Plan) -> str:
    return fingerprint_of(plan.described())


def written(folder: Path, name: str, source: str) -> Any:
    """A module of that source, imported anew, as a user's file is in each run."""
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(tmp_path: Path) -> Any:
    made: list[str] = []

    def make(source: str, name: str = "a_users_module") -> Any:
        made.append(name)
        folder = tmp_path / str(len(made))
        folder.mkdir()
        return written(folder, name, source)

    yield make
    for name in made:
        sys.modules.pop(name, None)


SOURCE = "def add(state, record):\n    return {'n': state['n'] + 1}\n"


def test_a_function_counts_by_its_source_not_by_where_it_lies_in_memory(module: Any) -> None:
    one = mark(plan(module(SOURCE).add))
    assert mark(plan(module(SOURCE).add)) == one
    assert mark(plan(module("# moved down\n\n" + SOURCE).add)) == one
    assert mark(plan(module(SOURCE.replace("+ 1", "+ 2")).add)) != one


def test_what_a_function_closes_over_and_its_defaults_count() -> None:
    def adding(by: object, more: object = 0) -> Callable[..., Any]:
        def add(state: dict[str, Any], record: dict[str, Any], extra: object = more) -> dict[str, Any]:
            return {"n": (by, extra)}

        return add

    told = {mark(plan(adding(by, more))) for by, more in [(1, 0), (2, 0), (1, 5), (Decimal(1), 0)]}
    assert len(told) == 4
    assert mark(plan(adding(object()))) == mark(plan(adding(object()))), "no address counts"
    assert mark(plan(functools.partial(add_to, 1))) != mark(plan(functools.partial(add_to, 2)))


def add_to(start: int, state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    return {"n": start}


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + self.by}


def test_an_object_that_can_be_called_counts_by_its_class_and_fields() -> None:
    assert mark(plan(Adder(1))) == mark(plan(Adder(1))) != mark(plan(Adder(2)))


def test_functions_that_know_each_other_are_described() -> None:
    def even(state: Any, record: Any) -> Any:
        return odd(state, record)

    def odd(state: Any, record: Any) -> Any:
        return even(state, record)

    assert mark(plan(even)) == mark(plan(even))


def test_without_source_the_bytecode_counts() -> None:
    def made(text: str) -> Callable[..., Any]:
        known: dict[str, Any] = {}
        exec(text, known)
        return known["f"]  # type: ignore[no-any-return]

    text = "def f(state, record):\n    return (lambda: {'n': 1})()"
    assert mark(plan(made(text))) == mark(plan(made(text)))
    assert mark(plan(made(text))) != mark(plan(made(text.replace("1", "2"))))


def test_the_start_of_a_fold_counts() -> None:
    one = plan(add_to)
    node = one.nodes[0]
    assert isinstance(node.operator, Fold)
    other = replace(one, nodes=(replace(node, operator=replace(node.operator, initial={"n": 1})),))
    assert mark(other) != mark(one)


def test_a_job_carries_functions_of_a_module_that_the_worker_cannot_import(module: Any, tmp_path: Path) -> None:
    helpers = module("STEP = 10\ndef step():\n    return STEP\n", "a_users_helpers")
    users = module(
        "import a_users_helpers\nfrom a_users_helpers import step\nONE = 1\n"
        "def add(state, record):\n    return {'n': state['n'] + ONE + step() + a_users_helpers.STEP}\n"
    )
    assert helpers.STEP == 10
    job = Job(
        "v",
        "file:x",
        Producer("p", Epoch(1)),
        topic="v",
        folder=str(tmp_path),
        query=str(tmp_path),
        inputs=("clicks",),
        plan=plan(users.add),
    )
    assert job.plan is not None
    worker = (
        "import sys, base64, pickle\n"
        "from headwater.process.lineage import fingerprint_of\n"
        "(job,) = pickle.loads(base64.b64decode(sys.stdin.read()))\n"
        "assert not {'a_users_module', 'a_users_helpers'} & set(sys.modules)\n"
        "print(job.plan.nodes[0].operator.function({'n': 100}, {})['n'], fingerprint_of(job.plan.described()))"
    )
    done = subprocess.run([sys.executable, "-c", worker], input=job.dump(), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == ["121", mark(job.plan)]


def test_a_module_that_is_imported_under_two_names_travels(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the main module is, once `multiprocessing` is imported."""
    users = module("def reduce(state, row):\n    return {'n': state['n'] + 1}\n")
    monkeypatch.setitem(sys.modules, "another_name_of_it", users)
    job = Job(
        "v",
        "file:x",
        Producer("v", Epoch(1)),
        topic="v",
        folder=str(tmp_path),
        query=str(tmp_path),
        inputs=(),
        plan=plan(users.reduce),
    )
    assert Job.load(job.dump()).name == "v"
