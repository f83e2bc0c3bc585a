"""One file a construct: a query, changes of its inputs, and the changes of the view that they must make."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.process.sql.planner import plan_view
from headwater.testing import PlanBench
from tests.golden.write_sql import plain
from tests.property.changes import INPUTS
from tests.property.test_prefix_rule import NAMED

FILES = sorted((Path(__file__).parent / "sql").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_view_changes_as_the_answer_does(file: Path) -> None:
    told = json.loads(file.read_text())
    bench = PlanBench(replace(plan_view("v", told["query"], INPUTS), buckets=2))
    for batch in told["batches"]:
        expected = batch.pop("expect")
        changed: Counter[str] = Counter()
        for row in bench.push({topic: _table(topic, rows) for topic, rows in batch.items()}).to_pylist():
            weight = row.pop("_weight")
            changed[json.dumps(list(plain(row).values()))] += weight
        shown = sorted((row, weight) for row, weight in changed.items() if weight)
        assert shown == sorted((json.dumps(row[:-1]), row[-1]) for row in expected)


def test_there_is_a_file_for_each_construct() -> None:
    assert {file.stem for file in FILES} == set(NAMED)


def _table(topic: str, rows: list[dict[str, Any]]) -> pa.Table:
    timed = [{**row, "at": datetime.fromisoformat(row["at"])} if "at" in row else row for row in rows]
    return pa.Table.from_pylist(timed, INPUTS[topic].stored)
