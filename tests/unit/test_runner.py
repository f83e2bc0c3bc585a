"""A bucket under Spark's state, with dictionaries in the place of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.process.job import Job, dump_jobs
from headwater.process.keyed.bucket import Rows, sent
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.runner import BucketProcessor
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64"}), key=("user_id",))
SQL = "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"


class Value:
    def __init__(self) -> None:
        self.value: Any = None

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value


class Mapped:
    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.values[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self.values[key]


class Handle:
    def __init__(self) -> None:
        self.manifests, self.chunks = Value(), Mapped()

    def getValueState(self, name: str, schema: str) -> Value:  # noqa: N802
        return self.manifests

    def getMapState(self, name: str, key: str, value: str) -> Mapped:  # noqa: N802
        return self.chunks


def job(log: hw.Log, name: str, folder: Path) -> Job:
    plan = plan_view(name, SQL, {"clicks": CLICKS})
    log.create(TopicSpec(name, plan.schema, key=plan.key, kind="table", partitions=plan.buckets))
    own = str(folder / name)
    return Job(name, log.url, log.begin(name), name, own, own, ("clicks",), plan=plan)


def arriving(job: Job, *views: int) -> pd.DataFrame:
    """A click of one user, as the source sends it, to its bucket."""
    assert job.plan is not None
    (send,) = job.plan.reads[0].sends
    (rows,) = sent(send, pa.table({"user_id": pa.array([1], pa.int64())}), job.plan.buckets)
    assert isinstance(rows, Rows)
    blob = rows.packed()
    label, many = bucket_labels(job.plan.buckets)[blob.bucket], len(views)
    return pd.DataFrame(
        {"bucket": [label] * many, "view": views, "port": [blob.port] * many, "data": [blob.data] * many}
    )


def test_views_keep_their_state_apart_and_that_of_dropped_ones_goes(log: hw.Log, tmp_path: Path) -> None:
    Topic(log, log.create(CLICKS))
    jobs = [job(log, "one", tmp_path), job(log, "two", tmp_path)]
    handle = Handle()

    def run(processor: BucketProcessor, *views: int) -> list[pd.DataFrame]:
        processor.init(handle)  # type: ignore[arg-type]
        given = arriving(jobs[0], *views)
        return list(processor.handleInputRows((given["bucket"][0],), iter([given]), None))

    (given,) = run(BucketProcessor(dump_jobs(jobs), 0, frozenset()), 0, 1)
    assert set(given["view"]) == {0, 1}
    assert set(json.loads(handle.manifests.value[0])) == {"one", "two"}
    equal = {view: {id for of, id in handle.chunks.values if of == view} for view in ("one", "two")}
    assert equal["one"] == equal["two"] != set(), "equal content has equal names, each has its own"
    run(BucketProcessor(dump_jobs([jobs[1]]), 0, frozenset({"one"})), 0)
    assert set(json.loads(handle.manifests.value[0])) == {"two"}
    assert {view for view, _ in handle.chunks.values} == {"two"}
