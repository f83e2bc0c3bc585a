"""State as an arrangement: immutable chunks of rows sorted by the hash of their key, found by binary search.

A row is never edited: a change is a new small chunk, and how rows are combined (summed, or the newest of a key) is
said by the arrangement's shape, so that merging chunks changes nothing that can be seen.

    arrangement = runs + merges; run = chunks with disjoint, ascending ranges of hashes; chunk = rows sorted by `_hash`

A batch adds a run. When a tier (runs of about the same size) is full, its runs are merged into one of the next tier:
each row is rewritten once a tier, so the work over time is logarithmic in the size of the state. A merge goes on over
several batches, each of which does as much of it as goes with its own size.

What is said of hashes holds for any number that rows are to be ordered by: an arrangement that is given times instead
is a queue, from whose lower end rows are taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headwater.log.keyhash import Hashes
from headwater.process.duck import FEW
from headwater.process.keyed import merging
from headwater.process.keyed.bykey import Mask, hashes_of, taken
from headwater.process.keyed.chunk import Chunk, ChunkRef, Chunks, Run, divide, run_size, write_run
from headwater.process.keyed.combining import GONE, HASH, Shape
from headwater.process.keyed.fixed import Ints, taken_from, typed
from headwater.process.keyed.manifest import Manifest
from headwater.process.keyed.merging import Merge

__all__ = ["GONE", "HASH", "Arrangement", "ChunkRef", "Chunks", "Manifest", "Shape"]


class Arrangement:
    """With `later`, runs are merged only when `merge` is called, as much as went with what was added until then."""

    def __init__(self, shape: Shape, chunks: Chunks, manifest: Manifest | None = None, *, later: bool = False) -> None:
        self.shape = shape
        self.manifest = manifest or Manifest()
        self._chunks = chunks
        self._later = later
        self._budget = 0

    # --- reading ---

    def gather(self, wanted: Hashes) -> pa.Table:
        """All rows whose key has one of these hashes (sorted, unique). Other keys of the same hash come along."""
        return self.hashed(wanted).drop_columns([HASH])

    def newest(self, wanted: Hashes) -> pa.Table:
        """The newest row of each key that has one of these hashes, be it `_gone` or not, with its `_hash`, sorted."""
        return self.shape.newest_of(self.hashed(wanted))

    def hashed(self, wanted: Hashes) -> pa.Table:
        """As `gather`, with each row's `_hash`."""
        found = []
        for ref, near in _near(self.manifest, wanted):
            chunk = self._chunks.load(ref)
            positions = _positions(chunk.hashes, near)
            if len(positions):
                found.append((chunk, positions))
        return _rows(found, self.shape.stored)

    # --- changing ---

    def add(self, rows: pa.Table, hashes: Hashes | None = None) -> None:
        """Add rows to what is there. `hashes`, if the caller has them, are those of the key, row by row."""
        if rows.num_rows == 0:
            return
        if hashes is None:
            hashes = hashes_of(rows, self.shape.key)
        ordered = typed(rows, self.shape.schema).add_column(0, self.shape.stored.field(0), pa.array(hashes))
        if not (hashes[1:] >= hashes[:-1]).all():
            ordered = taken(ordered, np.argsort(hashes, kind="stable"))
        run = write_run(ordered, self._chunks)
        self.manifest = Manifest((*self.manifest.runs, run), self.manifest.merges)
        self._budget += max(merging.MERGE_BYTES, merging.MERGE_FACTOR * run_size(run))
        if not self._later:
            self.merge()

    def merge(self) -> None:
        if self._budget:
            budget, self._budget = self._budget, 0
            self._merge(budget)

    def take_up_to(self, bound: int) -> pa.Table:
        """Remove the rows with hashes up to `bound`, and return them. The work is that of the rows taken."""
        taken = [self.shape.stored.empty_table()]

        def cut(run: Run) -> Run:
            rows, rest = divide(run, bound, self._chunks)
            taken.extend(rows)
            return rest

        before = self.manifest
        self.manifest = Manifest(tuple(rest for run in before.runs if (rest := cut(run))))
        for merge in before.merges:
            self._go_on(replace(merge, sources=tuple(cut(run) for run in merge.sources), into=cut(merge.into)))
        self._drop_unused(before)
        return pa.concat_tables(taken)

    def _merge(self, budget: int) -> None:
        while True:
            self.manifest = _with_new_merges(self.manifest)
            worth = [merge for merge in self.manifest.merges if merge.worth(budget)]
            if not worth:
                return
            budget -= self._advance(min(worth, key=lambda merge: merge.tier), budget)

    def _advance(self, merge: Merge, budget: int) -> int:
        """Merge one more range of hashes; answers how many bytes were read for it."""
        bound = merge.reach(budget, self._chunks)
        divided = [divide(run, bound, self._chunks) for run in merge.sources]
        before = self.manifest
        self.manifest = replace(before, merges=tuple(other for other in before.merges if other is not merge))
        others = self.manifest
        rows = self.shape.combined(
            pa.concat_tables([table for tables, _ in divided for table in tables]).combine_chunks(),
            lambda hashes: self._held(hashes, others),
        )
        written = write_run(rows, self._chunks) if rows.num_rows else ()
        after = replace(merge, sources=tuple(rest for _, rest in divided), into=(*merge.into, *written))
        self._go_on(after)
        self._drop_unused(before)
        return merge.left - after.left

    def _go_on(self, merge: Merge) -> None:
        """A merge that has more to do stays one; of one that is through, its run."""
        runs, merges = self.manifest.runs, self.manifest.merges
        sources = tuple(run for run in merge.sources if run)
        if sources:
            self.manifest = Manifest(runs, (*merges, replace(merge, sources=sources)))
        elif merge.into:
            self.manifest = Manifest((*runs, merge.into), merges)

    def _held(self, hashes: Hashes, among: Manifest) -> Mask:
        """Which of these hashes (sorted) have rows in these chunks."""
        held = np.zeros(len(hashes), np.bool_)
        for ref, near in _near(among, hashes):
            there = self._chunks.load(ref).hashes
            places = np.minimum(np.searchsorted(there, near), len(there) - 1)
            held[np.isin(hashes, near[there[places] == near])] = True
        return held

    def _drop_unused(self, before: Manifest) -> None:
        used = self.manifest.ids
        unused = {ref.id: ref for ref in before.refs if ref.id not in used}
        for _, ref in sorted(unused.items()):
            self._chunks.drop(ref)


def _with_new_merges(manifest: Manifest) -> Manifest:
    for tier, runs in merging.full_tiers(manifest.runs, {merge.tier for merge in manifest.merges}):
        left = tuple(run for run in manifest.runs if run not in runs)
        manifest = Manifest(left, (*manifest.merges, Merge(tier, runs, ())))
    return manifest


def _near(manifest: Manifest, wanted: Hashes) -> Iterable[tuple[ChunkRef, Hashes]]:
    """The chunks that may hold wanted hashes (sorted), each with those that fall into its range."""
    if not len(wanted):
        return
    low, high = manifest.bounds
    begins, ends = wanted.searchsorted(low), wanted.searchsorted(high, "right")
    for place in np.flatnonzero(begins < ends).tolist():
        yield manifest.refs[place], wanted[begins[place] : ends[place]]


def _rows(found: list[tuple[Chunk, Ints]], schema: pa.Schema) -> pa.Table:
    """The rows at these places of these chunks."""
    if sum(len(places) for _, places in found) <= FEW:
        several = [(words, places) for chunk, places in found if (words := chunk.words) is not None]
        if len(several) == len(found) > 0:
            return taken_from(schema, several)
    return pa.concat_tables([schema.empty_table(), *(taken(chunk.rows, places) for chunk, places in found)])


def _positions(hashes: Hashes, wanted: Hashes) -> Ints:
    """Where rows with the wanted hashes stand: found by binary search; of several with one hash the range of them."""
    low: Ints = np.searchsorted(hashes, wanted)
    hit = hashes.take(low, mode="clip") == wanted
    low = low[hit]
    if not len(low) or not (hashes.take(low + 1, mode="clip") == wanted[hit]).any():
        return low
    sizes = np.searchsorted(hashes, wanted[hit], "right") - low
    ends = np.cumsum(sizes)
    places: Ints = np.repeat(low - (ends - sizes), sizes) + np.arange(ends[-1])
    return places
