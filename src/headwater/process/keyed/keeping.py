"""Where the state of a view rests: chunks as files, and a list of them for every batch, which goes with its append.

<pipeline>/kept/chunks/<id>
<pipeline>/kept/<sequence>-<epoch>.json
    {"operators": {number: name}, "buckets": {"<level>-<bucket>": {"<number> <arrangement>": manifest}}}
    where all buckets of a level may be one: "<level>-all"

Of the lists the one counts that has the sequence and epoch of the view's last append in the log. So answer and state go
on together or not at all: a list that no append has followed might as well not be there, and a batch that Spark runs
again after its append finds that it is done.

A list is written before the append, and after it the older one is removed with the chunks that only it names; what a
crash leaves behind is removed by the next run. Nothing here is synced. What a power cut has taken is noticed: a list
goes with an append, and a chunk has its size in the list and its checksum in its name. Then the view is built again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from headwater.errors import CheckpointLost
from headwater.log.position import Epoch
from headwater.log.protocol import Covered
from headwater.process.checkpoint import BEFORE_FIRST
from headwater.process.keyed.arrangement import Arrangement, Manifest, Shape
from headwater.process.keyed.chunk import ChunkRef, Loaded
from headwater.process.keyed.chunkfiles import ChunkFiles
from headwater.process.keyed.pending import PendingChunks
from headwater.process.keyed.spreading import WHOLE, lies_within, united, within
from headwater.process.plan import Plan

FOLDER = "kept"

Manifests = Mapping[str, Manifest]
"""Of one bucket, by arrangement."""
Buckets = Mapping[str, Manifests]
_ALL = "all"


def to_json(buckets: Buckets) -> Any:
    return {
        place: {name: manifest.to_json() for name, manifest in manifests.items()}
        for place, manifests in buckets.items()
    }


def from_json(told: Any) -> Buckets:
    return {
        place: {name: Manifest.from_json(each) for name, each in manifests.items()} for place, manifests in told.items()
    }


def place(level: int, bucket: int) -> str:
    return f"{level}-{_ALL if bucket == WHOLE else bucket}"


def placed(place: str) -> tuple[int, int]:
    """The level and the bucket."""
    level, _, bucket = place.partition("-")
    return int(level), WHOLE if bucket == _ALL else int(bucket)


def held(buckets: Buckets, level: int, bucket: int, ways: int, chunks: Loaded) -> Manifests:
    """What a bucket of a level holds, or all of them, by arrangement; whichever of the two is listed."""
    listed = buckets.get(place(level, bucket))
    if listed is not None:
        return listed
    if bucket != WHOLE:
        whole = buckets.get(place(level, WHOLE), {})
        return {name: within(manifest, bucket, ways, chunks) for name, manifest in whole.items()}
    each = [buckets.get(place(level, number), {}) for number in range(ways)]
    for number, one in enumerate(each):
        astray = next((name for name, manifest in one.items() if not lies_within(manifest, number, ways)), None)
        assert astray is None, f"rows of {astray!r} are not found by the key that they are spread by"
    names = dict.fromkeys(name for one in each for name in one)
    return {name: united([one.get(name, Manifest()) for one in each]) for name in names}


def with_changed(before: Buckets, changed: Buckets, ways: int, chunks: Loaded) -> Buckets:
    """The buckets as they will be: of each level either all of them as one, or each by itself."""
    after = dict(before)
    for level, bucket in map(placed, changed):
        every = [place(level, number) for number in range(ways)]
        if bucket == WHOLE:
            for here in every:
                after.pop(here, None)
        elif place(level, WHOLE) in after:
            apart = {here: held(after, level, number, ways, chunks) for number, here in enumerate(every)}
            del after[place(level, WHOLE)]
            after |= apart
    return {**after, **changed}


class Kept:
    def __init__(self, pipeline: Path, producer: str) -> None:
        self._folder = pipeline / FOLDER
        self._producer = producer
        self.chunks = ChunkFiles(self._folder / "chunks")

    def buckets(self, covered: Covered | None) -> Buckets:
        """As they were after that append: the last one, or one for which nothing was kept yet."""
        if covered is None or covered.sequence == BEFORE_FIRST:
            return {}
        path = self._list(covered.sequence, covered.epoch)
        try:
            return _read(path, path.stat().st_mtime_ns)
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointLost(pipeline=self._producer, why=f"its state is gone: {error}") from error

    def write(self, sequence: int, epoch: Epoch, plan: Plan, buckets: Buckets) -> None:
        operators = {str(number): type(node.operator).__name__ for number, node in enumerate(plan.nodes)}
        told = {"operators": operators, "buckets": to_json(buckets)}
        text, path = json.dumps(told, sort_keys=True, separators=(",", ":")), self._list(sequence, epoch)
        try:
            path.write_text(text)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def settle(self, sequence: int, epoch: Epoch, before: Iterable[Buckets], after: Buckets) -> None:
        """Once the append stands: what only `before` speaks of goes, and older lists. Those of a run that has overtaken
        this one stay: nobody asks here whether there is one."""
        self.forget(before, but=after)
        for path in self._folder.glob("*-*.json"):
            if _of_list(path) < (sequence, epoch):
                path.unlink(missing_ok=True)

    def forget(self, buckets: Iterable[Buckets], *, but: Buckets) -> None:
        self.chunks.remove({id for each in buckets for id in _ids(each)}, but=_ids(but))

    def verify(self, covered: Covered | None) -> None:
        """Raises `CheckpointLost` if something of the state that goes with this append is not there."""
        lacking = self.chunks.lacking(_refs(self.buckets(covered)))
        if lacking is not None:
            raise CheckpointLost(pipeline=self._producer, why=f"its state is not whole: chunk {lacking} is missing")

    def sweep(self, covered: Covered | None) -> None:
        """Before a run: what earlier ones have left behind goes."""
        self.chunks.keep_only(_ids(self.buckets(covered)))
        counts = self._list(covered.sequence, covered.epoch) if covered is not None else None
        for path in self._folder.glob("*.*"):
            if path != counts:
                path.unlink(missing_ok=True)

    def _list(self, sequence: int, epoch: Epoch) -> Path:
        return self._folder / f"{sequence}-{epoch}.json"


class BucketState:
    """The arrangements of one bucket in one level, or of all of them, for one batch.

    With `later`, nothing is merged before `merge` is called, when the batch is appended and nobody waits for it.
    """

    def __init__(self, chunks: PendingChunks, manifests: Manifests, *, later: bool = False) -> None:
        self._manifests = manifests
        self._store = chunks
        self._arrangements: dict[str, Arrangement] = {}
        self._later = later

    def arrangement(self, name: str, shape: Shape) -> Arrangement:
        if name not in self._arrangements:
            known = self._manifests.get(name)
            self._arrangements[name] = Arrangement(shape, self._store, known, later=self._later)
        return self._arrangements[name]

    def merge(self) -> Manifests:
        """As `settle`, for what is merged now."""
        for each in self._arrangements.values():
            each.merge()
        return self.settle()

    def settle(self) -> Manifests:
        """Write all that the batch has added; answers the manifests that say so."""
        self._store.settle()
        return {**self._manifests, **{name: each.manifest for name, each in self._arrangements.items()}}


def newest(pipeline: Path) -> tuple[Mapping[str, str], Buckets]:
    """The names of the operators, and all manifests, of the last batch: for people."""
    lists = list((pipeline / FOLDER).glob("*.json"))
    for path in sorted(lists, key=_of_list, reverse=True):
        try:
            told = json.loads(path.read_text())
            return told["operators"], from_json(told["buckets"])
        except (OSError, ValueError):  # it was removed meanwhile
            continue
    return {}, {}


def _of_list(path: Path) -> tuple[int, int]:
    """The sequence and the epoch of the append that it goes with."""
    sequence, _, epoch = path.stem.rpartition("-")
    return int(sequence), int(epoch)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Buckets:
    return from_json(json.loads(path.read_text())["buckets"])


def _refs(buckets: Buckets) -> list[ChunkRef]:
    return [ref for manifests in buckets.values() for manifest in manifests.values() for ref in manifest.refs]


def _ids(buckets: Buckets) -> set[str]:
    return {id for manifests in buckets.values() for manifest in manifests.values() for id in manifest.ids}
