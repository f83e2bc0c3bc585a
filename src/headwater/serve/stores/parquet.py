"""A view's rows in Parquet files, for a warehouse: `FOLDER/current/*.parquet` is the view, whole, at every moment.

    FOLDER/current -> at-7-3f2a      a link, swapped by one rename: that is the transaction
    FOLDER/at-7-3f2a/manifest.json   the version, the mark, and how many rows are in which file
    FOLDER/at-7-3f2a/part-03.parquet rows whose hash falls into that part; files that did not change are hard links
    FOLDER/lock                      who applies holds it

An apply writes the touched parts anew, syncs them, then swaps the link. The state before stays, for readers in the
middle of it; older ones are removed. A crash leaves at most a folder that nothing links to: the next apply removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import BadStore, StoreFailed, StoreTaken
from headwater.records import WEIGHT
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.net import Net, buckets, net, repeated

PARTS = 16
FORMAT = 1
CURRENT, MANIFEST, LOCK = "current", "manifest.json", "lock"


class ParquetFolder:
    def __init__(self, folder: Path, served: Served, *, name: str) -> None:
        self._folder = folder
        self._served = served
        self._name = name
        with self._using() as manifest:
            if manifest is None and any(each.name != LOCK for each in folder.iterdir()):
                raise BadStore(
                    store=name, why="there are other files in the folder", do="Name one that is empty or new"
                )
            if manifest is None or manifest["version"] != served.version:
                self._swap(NOTHING, {})

    @contextmanager
    def _using(self) -> Iterator[dict[str, Any] | None]:
        """The manifest, while nobody else applies."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self._manifest()
        except OSError as error:
            raise StoreFailed(store=self._name, why=str(error)) from error

    def _manifest(self) -> dict[str, Any] | None:
        file = self._folder / CURRENT / MANIFEST
        if not file.exists():
            return None
        told: dict[str, Any] = json.loads(file.read_text())
        if told["format"] != FORMAT:
            raise BadStore(
                store=self._name, why=f"it has format {told['format']}", do="Use the Headwater that wrote it"
            )
        return told

    def mark(self) -> Mark:
        with self._using() as manifest:
            return self._mark(manifest)

    def _mark(self, manifest: dict[str, Any] | None) -> Mark:
        if manifest is None or manifest["version"] != self._served.version:
            raise StoreTaken(store=self._name, by=manifest["version"] if manifest else "")
        return Mark.parse(manifest["mark"])

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        some = net(changes, self._served.schema)
        with self._using() as manifest:
            expect(self._mark(manifest), after, store=self._name)
            self._swap(mark, {part: self._changed(part, of) for part, of in by_part(some, PARTS).items()})

    def _changed(self, part: int, some: Net) -> pa.Table:
        file = self._folder / CURRENT / _name(part)
        return merged(pq.read_table(file) if file.exists() else None, some, self._served.schema)

    def _swap(self, mark: Mark, changed: dict[int, pa.Table]) -> None:
        """From this state to one with these parts and this mark; without a mark, to an empty one."""
        before = self._folder / CURRENT
        target = self._folder / f"at-{mark.number}-{secrets.token_hex(4)}"
        target.mkdir()
        for part, rows in changed.items():
            if rows.num_rows:
                pq.write_table(rows, target / _name(part))
                _sync(target / _name(part))
        for file in before.glob("*.parquet") if mark != NOTHING else ():
            if not (target / file.name).exists() and file.name not in {_name(part) for part in changed}:
                os.link(file.resolve(), target / file.name)
        files = {file.name: pq.read_metadata(file).num_rows for file in sorted(target.glob("*.parquet"))}
        told = {"format": FORMAT, "view": self._served.view, "version": self._served.version, "mark": str(mark)}
        (target / MANIFEST).write_text(json.dumps({**told, "files": files}))
        _sync(target / MANIFEST)
        _sync(target)
        link = self._folder / f"{target.name}.link"
        link.symlink_to(target.name)
        kept = {target.name, before.resolve().name if before.exists() else ""}
        link.rename(before)
        _sync(self._folder)
        for left in self._folder.glob("at-*"):
            if left.name not in kept:
                left.unlink() if left.is_symlink() else shutil.rmtree(left)

    def clear(self) -> None:
        with self._using() as manifest:
            self._mark(manifest)
            self._swap(NOTHING, {})

    def close(self) -> None:
        """Nothing stays open."""


def by_part(some: Net, parts: int) -> dict[int, Net]:
    """The changes of each part that has any."""
    here, gone = _parts_of(some.here, parts), _parts_of(some.gone, parts)
    found = {}
    for part in sorted({*here.tolist(), *gone.tolist()}):
        come, go = np.flatnonzero(here == part), np.flatnonzero(gone == part)
        found[part] = Net(
            some.here.take(pa.array(come)),
            [some.here_times[place] for place in come],
            some.gone.take(pa.array(go)),
            [some.gone_times[place] for place in go],
        )
    return found


def merged(rows: pa.Table | None, some: Net, schema: pa.Schema) -> pa.Table:
    """A part's rows with the changes in them."""
    weighted = [(some.here, some.here_times), (some.gone, [-times for times in some.gone_times])]
    if rows is not None:
        weighted.append((rows.cast(schema), [1] * rows.num_rows))
    together = [each.append_column(WEIGHT, pa.array(weights, pa.int64())) for each, weights in weighted]
    left = net(pa.concat_tables(together), schema)
    return repeated(left.here, left.here_times)


def _parts_of(rows: pa.Table, parts: int) -> Any:
    return buckets(rows, parts) if rows.num_rows else np.array([], np.int64)


def _name(part: int) -> str:
    return f"part-{part:02}.parquet"


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
