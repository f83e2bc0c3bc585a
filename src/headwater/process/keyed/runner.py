"""One bucket of one operator under Spark's transformWithState. The only file that knows how Spark keeps state.

    manifest   ValueState: for each arrangement of the operator, its runs of chunk references, as JSON
    chunks     MapState:   chunk id -> the chunk's bytes

Spark gives state and output of a batch together or not at all; a retried batch finds the older manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.process.job import Job
from headwater.process.keyed import inspect
from headwater.process.keyed.arrangement import Arrangement, Manifest, Shape
from headwater.process.keyed.bucket import run_batch
from headwater.process.keyed.chunkcache import CachedChunks
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.pending import PendingChunks

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

OUTPUT = "bucket int, port int, data binary"


class BucketProcessor(StatefulProcessor):
    """One level of a plan. Its rows go on to the next level's buckets or, from the last, to the topic's partitions."""

    def __init__(self, job: Job, level: int) -> None:
        self._job_text = job.dump()  # Spark would pickle a user's function by the name of a module workers lack
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "runs string")
        self._chunks = handle.getMapState("chunks", "id string", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        job = Job.load(self._job_text)
        plan = job.plan
        assert plan is not None
        labels = bucket_labels(plan.buckets)
        bucket = labels.index(int(key[0]))
        state = _SparkState(job.cache, self._manifest.get(), _SparkChunks(self._chunks))
        blobs = list(run_batch(plan, self._level, bucket, state, _by_port(rows)))
        self._manifest.update((state.settle(),))
        inspect.write(Path(job.folder), plan, self._level, bucket, state.manifests)
        if blobs:
            named = range(plan.buckets) if self._level == plan.levels - 1 else labels
            yield pd.DataFrame(
                {
                    "bucket": pd.Series([named[blob.bucket] for blob in blobs], dtype="int32"),
                    "port": pd.Series([blob.port for blob in blobs], dtype="int32"),
                    "data": [blob.data for blob in blobs],
                }
            )

    def close(self) -> None:
        pass


def _by_port(frames: Iterator[pd.DataFrame]) -> dict[int, list[bytes]]:
    blobs: dict[int, list[bytes]] = {}
    for frame in frames:
        for port, blob in zip(frame["port"], frame["data"], strict=True):
            blobs.setdefault(int(port), []).append(blob)
    return blobs


class _SparkState:
    def __init__(self, cache: Path, known: Any, remembered: _SparkChunks) -> None:
        told = json.loads(known[0]) if known else {}
        self.manifests = {name: Manifest.from_json(manifest) for name, manifest in told.items()}
        self._store = PendingChunks(CachedChunks(cache, remembered))
        self._arrangements: dict[str, Arrangement] = {}

    def arrangement(self, name: str, shape: Shape) -> Arrangement:
        if name not in self._arrangements:
            self._arrangements[name] = Arrangement(shape, self._store, self.manifests.get(name))
        return self._arrangements[name]

    def settle(self) -> str:
        """Save and drop all that the step has changed; answers the manifests that say so."""
        before = self.manifests
        self.manifests = {**before, **{name: each.manifest for name, each in self._arrangements.items()}}
        self._store.settle(_ids(before), _ids(self.manifests))
        told = {name: manifest.to_json() for name, manifest in self.manifests.items()}
        return json.dumps(told, sort_keys=True, separators=(",", ":"))


def _ids(manifests: dict[str, Manifest]) -> set[str]:
    return {id for manifest in manifests.values() for id in manifest.ids}


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
