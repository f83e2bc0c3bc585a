"""One bucket of one level under Spark's transformWithState. The only file that knows how Spark keeps state.

    manifests   ValueState: for each view, for each arrangement of its operators, its runs of chunk references, as JSON
    chunks      MapState:   (view, chunk id) -> the chunk's bytes

A view is known by its producer's name, so that what one version has is never another's. Spark gives state and output of
a batch together or not at all; a retried batch finds the older manifests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.process.blame import blamed_on
from headwater.process.job import Job, load_jobs
from headwater.process.keyed import inspect
from headwater.process.keyed.arrangement import Arrangement, Manifest, Shape
from headwater.process.keyed.bucket import Blob, run_batch
from headwater.process.keyed.chunkcache import CachedChunks
from headwater.process.keyed.packing import bucket_labels
from headwater.process.keyed.pending import PendingChunks
from headwater.process.keyed.travel import leaving

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import MapState


class BucketProcessor(StatefulProcessor):
    """One level of the plans of some views. Rows go on to the next level's buckets or, from the last, to the sink.

    State of those that are `dropped` is let go of.
    """

    def __init__(self, jobs: str, level: int, dropped: frozenset[str]) -> None:
        self._jobs_text = jobs
        self._level = level
        self._dropped = dropped

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifests = handle.getValueState("manifests", "views string")
        self._chunks = handle.getMapState("chunks", "view string, id string", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd  # workers have it already; the process that plans a query never needs it, and starts sooner

        jobs = load_jobs(self._jobs_text)
        arrived = _by_view_and_port(rows)
        known = self._manifests.get()
        told: dict[str, str] = json.loads(known[0]) if known else {}
        for name in sorted(told.keys() & self._dropped):
            self._forget(name, told.pop(name))
        leave: list[tuple[int, Blob, int]] = []
        for view in sorted(arrived):
            with blamed_on(jobs[view]):
                leave += self._step(jobs[view], view, int(key[0]), arrived[view], told)
        self._manifests.update((json.dumps(told, sort_keys=True),))
        if leave:
            yield pd.DataFrame(
                {
                    "bucket": pd.Series([label for _, _, label in leave], dtype="int32"),
                    "view": pd.Series([view for view, _, _ in leave], dtype="int32"),
                    "port": pd.Series([blob.port for _, blob, _ in leave], dtype="int32"),
                    "data": [blob.data for _, blob, _ in leave],
                }
            )

    def _step(
        self, job: Job, view: int, label: int, arrived: dict[int, list[bytes]], told: dict[str, str]
    ) -> list[tuple[int, Blob, int]]:
        """What leaves, each with the number that stands for its bucket."""
        plan, name = job.plan, job.producer.name
        assert plan is not None
        labels = bucket_labels(plan.buckets)
        bucket = labels.index(label)
        state = _SparkState(job.cache, told.get(name), _SparkChunks(self._chunks, name))
        blobs = list(leaving(job, run_batch(plan, self._level, bucket, state, arrived), f"bucket {bucket:04}"))
        told[name] = state.settle()
        inspect.write(Path(job.folder), plan, self._level, bucket, state.manifests)
        named = range(plan.buckets) if self._level == plan.levels - 1 else labels
        return [(view, blob, named[blob.bucket]) for blob in blobs]

    def _forget(self, name: str, manifests: str) -> None:
        chunks = _SparkChunks(self._chunks, name)
        for id in _ids(_manifests(manifests)):
            chunks.remove(id)

    def close(self) -> None:
        pass


def _by_view_and_port(frames: Iterator[pd.DataFrame]) -> dict[int, dict[int, list[bytes]]]:
    blobs: dict[int, dict[int, list[bytes]]] = {}
    for frame in frames:
        for view, port, blob in zip(frame["view"], frame["port"], frame["data"], strict=True):
            blobs.setdefault(int(view), {}).setdefault(int(port), []).append(blob)
    return blobs


class _SparkState:
    def __init__(self, cache: Path, known: str | None, remembered: _SparkChunks) -> None:
        self.manifests = _manifests(known or "{}")
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


def _manifests(told: str) -> dict[str, Manifest]:
    return {name: Manifest.from_json(manifest) for name, manifest in json.loads(told).items()}


def _ids(manifests: dict[str, Manifest]) -> set[str]:
    return {id for manifest in manifests.values() for id in manifest.ids}


class _SparkChunks:
    """One view's."""

    def __init__(self, chunks: MapState, view: str) -> None:
        self._chunks = chunks
        self._view = view

    def get(self, id: str) -> bytes:
        found = self._chunks.getValue((self._view, id))
        assert found is not None, f"the manifest names chunk {id}, which Spark's state does not have"
        return bytes(found[0])

    def put(self, id: str, data: bytes) -> None:
        self._chunks.updateValue((self._view, id), (data,))

    def remove(self, id: str) -> None:
        self._chunks.removeKey((self._view, id))
