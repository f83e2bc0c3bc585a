"""Which bucket a key belongs to: by its hash, a range of hashes each. So buckets are views of one whole.

An arrangement whose rows are found by the hash of that key can be read and written as a whole (`united`), and a
bucket's share of it is what lies within the bucket's range (`within`): neither touches a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from headwater.log.keyhash import Hashes
from headwater.process.keyed.chunk import Loaded, Run
from headwater.process.keyed.manifest import Manifest
from headwater.process.keyed.merging import Merge, tier_of

VERSION = 2
"""Part of every view's fingerprint."""
WHOLE = -1
"""In the place of a bucket: all of them."""
_HALF = np.uint64(32)


def bucket_of(hashes: Hashes, buckets: int) -> npt.NDArray[np.int64]:
    return ((hashes >> _HALF) * np.uint64(buckets) >> _HALF).astype(np.int64)


def bounds(bucket: int, buckets: int) -> tuple[int, int]:
    """The least and the greatest hash that belong to it."""

    def least(number: int) -> int:
        return -(-(number << 32) // buckets) << 32

    return least(bucket), least(bucket + 1) - 1


def united(manifests: Sequence[Manifest]) -> Manifest:
    """Of all buckets, in their order. Runs of about the same size become one, for their ranges follow each other."""
    runs = []
    for tier in sorted({tier_of(run) for each in manifests for run in each.runs}):
        alike = [[run for run in each.runs if tier_of(run) == tier] for each in manifests]
        runs += [tuple(ref for run in row for ref in run) for row in zip_longest(*alike, fillvalue=())]
    return Manifest(tuple(runs), tuple(merge for each in manifests for merge in each.merges))


def lies_within(manifest: Manifest, bucket: int, buckets: int) -> bool:
    """Whether all rows have hashes that belong to the bucket."""
    low, high = bounds(bucket, buckets)
    return all(low <= ref.low and ref.high <= high for ref in manifest.refs)


def within(manifest: Manifest, bucket: int, buckets: int, chunks: Loaded) -> Manifest:
    """What of an arrangement belongs to a bucket."""
    low, high = bounds(bucket, buckets)

    def some(run: Run) -> Run:
        return _between(run, low, high, chunks)

    runs = [some(run) for run in manifest.runs]
    merges = []
    for merge in manifest.merges:
        sources, into = tuple(filter(None, map(some, merge.sources))), some(merge.into)
        if sources:
            merges.append(Merge(merge.tier, sources, into))
        else:
            runs.append(into)
    return Manifest(tuple(filter(None, runs)), tuple(merges))


def _between(run: Run, low: int, high: int, chunks: Loaded) -> Run:
    found = []
    for ref in run:
        if low <= ref.low and ref.high <= high:
            found.append(ref)
        elif ref.low <= high and ref.high >= low:
            hashes = chunks.load(ref).hashes
            first = int(np.searchsorted(hashes, np.uint64(max(low, ref.low)), "left"))
            last = int(np.searchsorted(hashes, np.uint64(min(high, ref.high)), "right"))
            if last > first:
                found.append(replace(ref, rows=last - first, low=int(hashes[first]), high=int(hashes[last - 1])))
    return tuple(found)
