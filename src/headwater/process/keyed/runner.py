"""One bucket of one operator under Spark's transformWithState. The only file that knows how Spark keeps state.

    manifest   ValueState: for each arrangement of the operator, its runs of chunk references, as JSON
    chunks     MapState:   chunk id -> the chunk's bytes

Spark gives state and output of a batch together or not at all; a retried batch finds the older manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.process import duck
from headwater.process.job import Job
from headwater.process.keyed.arrangement import Arrangement, Shape
from headwater.process.keyed.chunkcache import CachedChunks
from headwater.process.keyed.packing import bucket_labels, pack_by_key, unpack
from headwater.process.plan import CHANGES

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

OUTPUT = "bucket int, port int, data binary"


class BucketProcessor(StatefulProcessor):
    """One level of a plan. Its rows go on to the next level's buckets or, from the last, to the topic's partitions."""

    def __init__(self, job: Job, level: int) -> None:
        self._job = job
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "runs string")
        self._chunks = handle.getMapState("chunks", "id string", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        plan = self._job.plan
        assert plan is not None
        level = plan.levels[self._level]
        is_last = self._level == len(plan.levels) - 1
        labels = range(plan.buckets) if is_last else bucket_labels(plan.buckets)
        state = _SparkState(self._job, self._manifest.get(), _SparkChunks(self._chunks))
        answer = level.operator.step(state, _by_port(rows))
        self._manifest.update((state.manifest(),))
        if level.sql is not None:
            answer = duck.run(level.sql, **{CHANGES: answer})
        packed = list(pack_by_key(answer, level.key, plan.buckets))
        if packed:
            yield pd.DataFrame(
                {
                    "bucket": pd.Series([labels[bucket] for bucket, _ in packed], dtype="int32"),
                    "port": pd.Series([0] * len(packed), dtype="int32"),
                    "data": [blob for _, blob in packed],
                }
            )

    def close(self) -> None:
        pass


def _by_port(frames: Iterator[pd.DataFrame]) -> dict[int, pa.Table]:
    blobs: dict[int, list[bytes]] = {}
    for frame in frames:
        for port, blob in zip(frame["port"], frame["data"], strict=True):
            blobs.setdefault(int(port), []).append(blob)
    # Tasks deliver in any order; the operators do not mind, sorting makes what they write the same bytes every time.
    return {port: unpack(sorted(packed)) for port, packed in blobs.items()}


class _SparkState:
    def __init__(self, job: Job, known: Any, remembered: _SparkChunks) -> None:
        self._runs: dict[str, Any] = json.loads(known[0]) if known else {}
        self._store = CachedChunks(job.cache, remembered)
        self._arrangements: dict[str, Arrangement] = {}

    def arrangement(self, name: str, shape: Shape) -> Arrangement:
        if name not in self._arrangements:
            self._arrangements[name] = Arrangement.of(shape, self._store, self._runs.get(name, []))
        return self._arrangements[name]

    def manifest(self) -> str:
        runs = {**self._runs, **{name: each.manifest() for name, each in self._arrangements.items()}}
        return json.dumps(runs, sort_keys=True, separators=(",", ":"))


class _SparkChunks:
    def __init__(self, chunks: MapState) -> None:
        self._chunks = chunks

    def get(self, id: str) -> bytes:
        found = self._chunks.getValue((id,))
        assert found is not None, f"the manifest names chunk {id}, which Spark's state does not have"
        return bytes(found[0])

    def put(self, id: str, data: bytes) -> None:
        self._chunks.updateValue((id,), (data,))

    def remove(self, id: str) -> None:
        self._chunks.removeKey((id,))
