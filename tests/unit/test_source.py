"""The Spark source as plain Python: when it asks the log, and what for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.process.job import Job
from headwater.process.source import Limits, LogReader
from headwater.records import schema_of

COLUMNS = schema_of({"user_id": "int64"})


class Reader(LogReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


def test_appends_of_others_wake_an_idle_source_once(log: hw.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks, others = (Topic(log, log.create(TopicSpec(name, COLUMNS))) for name in ("clicks", "others"))
    folder = log.url.removeprefix("file:")
    job = Job("p", log.url, log.begin("p"), "out", f"{folder}/pipelines/p/1", f"{folder}/pipelines/p/1", ("clicks",))
    reader = Reader(job, ["clicks"], Limits())
    asked: list[int] = []
    monkeypatch.setattr(EmbeddedLog, "wait", lambda self, after, timeout_s: asked.append(after))

    def latest(start: dict[str, Any]) -> dict[str, Any]:
        return reader.latestOffset(start, ReadAllAvailable())

    clicks.append([{"user_id": 1}])
    start = latest(reader.initialOffset())
    others.append([{"user_id": 2}])  # as the pipeline's own output is one
    newest = log.snapshot(["others"]).number
    assert latest(start) == start
    assert asked[-1] < newest, "it looks"
    assert latest(start) == start
    assert asked[-1] == newest, "then it waits for what comes after"
    clicks.append([{"user_id": 3}])
    further = latest(start)
    assert further != start
    assert latest(further) == further
    assert asked[-1] == further["append"]
