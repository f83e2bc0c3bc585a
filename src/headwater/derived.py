"""What of a data folder is derived from its log, going along with a backup: checkpoints, the views' state, stores.

    1  Stores are copied first, each in one read transaction: so none of them knows more than the log in the backup.
    2  Pipelines are held between two batches, as far as they come to an end in `QUIET_S`.
    3  The log is copied (its catalog: the rest may be copied at leisure).
    4  Checkpoints and state are copied: as long as one changed meanwhile, again.
    5  Pipelines go on.
    6  Each checkpoint and store is compared with the log in the backup. A checkpoint must be able to go on where the
       log's last batch of its pipeline ended, and the state that goes with that batch must be whole; a store must stand
       at a place from which the log can bring it up to date.
       What does not fit is left out: a store is built again by the next run, a view without its checkpoint must be
       built again from the log.

Only step 6 is relied upon. The others make it likely that all of it fits, also while an app runs.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import apsw

from headwater.errors import HeadwaterError
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.manifest import LeftOut
from headwater.process.checkpoint import Checkpoint, Planned, last_batch
from headwater.process.hold import holding
from headwater.process.keyed.offsets import SharedCheckpoint, views_in
from headwater.process.version import topic_of
from headwater.process.versions import Versions
from headwater.serve.stores.sqlite import copy_store, mark_in

QUIET_S = 10.0
"""How long a batch under way is waited for."""
SETTLED_S = 0.5
"""A checkpoint that has been quiet for so long has no batch that was planned just before the hold."""
LOOK_S = 0.05
TRIES = 3
CACHE = "cache"
"""Of a pipeline's folder: copies of tables, which are made again."""

_Listing = dict[Path, tuple[int, int, int]]


class DerivedFiles:
    """For `headwater.log.embedded.backup.backup(along=...)`."""

    def __init__(self, *, quiet_s: float = QUIET_S, settled_s: float = SETTLED_S) -> None:
        self._quiet_s = quiet_s
        self._settled_s = settled_s
        self._left_out: list[LeftOut] = []

    def copy(self, root: Path, part: Path, cut: Callable[[], None]) -> None:
        self._left_out = []
        for store in sorted((root / "stores").glob("*.db")):
            self._copy_store(store, part)
        with ExitStack() as hold:
            if (root / "pipelines").is_dir():
                hold.enter_context(holding(root / "pipelines"))
                self._wait_for_quiet(root)
            cut()
            for folder in _folders(root):  # checkpoints, and what rests beside them, such as the batches to be skipped
                self._copy_folder(folder, part / folder.relative_to(root))

    def judge(self, log: EmbeddedLog) -> tuple[LeftOut, ...]:
        every = [each for of in Versions(log).all().values() for each in of]
        dropped = {each.producer for each in every if each.state == "dropped"}  # a shared query still tells of them
        for checkpoint in _checkpoints(log.root):
            planned = {name: of for name, of in _planned(checkpoint).items() if name not in dropped}
            misfits = {name: why for name in planned if (why := _refusal(log, name, planned[name])) is not None}
            for producer, why in misfits.items():
                self._leave_out_checkpoint(producer, why)
            if misfits and len(misfits) == len(
                planned
            ):  # those that share it with another stay, and are refused when they run
                shutil.rmtree(checkpoint.parent)
        for store in sorted((log.root / "stores").glob("*.db")):
            why = _misfit(log, store)
            if why is not None:
                self._leave_out_store(store, why)
                store.unlink()
        return tuple(self._left_out)

    def _copy_store(self, store: Path, part: Path) -> None:
        target = part / "stores" / store.name
        target.parent.mkdir(exist_ok=True)
        try:
            copy_store(store, target)
        except (HeadwaterError, apsw.Error) as error:
            target.unlink(missing_ok=True)
            self._leave_out_store(store, f"it cannot be read ({error})")

    def _wait_for_quiet(self, root: Path) -> None:
        """Until no checkpoint has a batch under way, and none has changed for a moment; or until the time is up."""
        deadline = time.monotonic() + self._quiet_s
        before, since = self._standing(root), time.monotonic()
        while time.monotonic() < deadline:
            now = self._standing(root)
            if now != before:
                before, since = now, time.monotonic()
            elif all(planned == done for planned, done in now) and time.monotonic() - since >= self._settled_s:
                return
            time.sleep(LOOK_S)

    def _standing(self, root: Path) -> list[tuple[int | None, int | None]]:
        return [(last_batch(each, "offsets"), last_batch(each, "commits")) for each in _checkpoints(root)]

    def _copy_folder(self, source: Path, target: Path) -> None:
        for _ in range(TRIES):
            before = _listing(source)
            shutil.rmtree(target, ignore_errors=True)
            try:
                _copy_files(source, target, before)
            except FileNotFoundError:  # Spark removed what it no longer needs
                continue
            if _listing(source) == before:
                return
        shutil.rmtree(target, ignore_errors=True)
        for producer in _planned(source / "checkpoint"):
            self._leave_out_checkpoint(producer, f"it changed {TRIES} times while it was copied")

    def _leave_out_checkpoint(self, producer: str, why: str) -> None:
        then = "After a restore this view must be built again from the log"
        self._left_out.append(LeftOut(f"the checkpoint of view {producer.rpartition('@')[0]!r}", why, then))

    def _leave_out_store(self, store: Path, why: str) -> None:
        then = "The next run builds it again from the view's topic"
        self._left_out.append(LeftOut(f"the store of view {_view(store)!r}", why, then))


def _folders(root: Path) -> list[Path]:
    """Those of pipelines and of the queries that several share."""
    return sorted(path for kind in ("pipelines/*/*", "queries/*") for path in root.glob(kind) if path.is_dir())


def _checkpoints(root: Path) -> list[Path]:
    return [folder / "checkpoint" for folder in _folders(root) if (folder / "checkpoint").is_dir()]


def _planned(checkpoint: Path) -> dict[str, Planned]:
    """What Spark has planned, by producer: of one pipeline, or of those that share the query."""
    shared = views_in(checkpoint)
    if shared is None:
        producer = "@".join(checkpoint.parts[-3:-1])
        return {producer: Checkpoint(checkpoint, producer)}
    return {name: SharedCheckpoint(checkpoint, name) for name in shared}


def _refusal(log: EmbeddedLog, producer: str, planned: Planned) -> str | None:
    from headwater.process.keyed.keeping import FOLDER as STATE  # with DuckDB, which other commands do not need
    from headwater.process.keyed.keeping import Kept

    view, _, tag = producer.rpartition("@")
    folder = log.root / "pipelines" / view / tag
    try:
        planned.verify(log)
        if (folder / STATE).is_dir():
            Kept(folder, producer).verify(log.covered(producer))
    except HeadwaterError as error:
        return error.what
    return None


def _view(store: Path) -> str:
    return store.stem.rpartition("@")[0]


def _topic(store: Path) -> str:
    """That of the version whose store it is (see `Version.tag`)."""
    version = re.search(r"\.v(\d+)$", store.stem)
    return topic_of(_view(store), int(version[1]) if version else 1)


def _listing(folder: Path) -> _Listing:
    """Spark replaces files and never changes one: the same listing is the same content."""
    found = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.relative_to(folder).parts[0] != CACHE:
                told = path.stat()
                found[path.relative_to(folder)] = (told.st_ino, told.st_size, told.st_mtime_ns)
        except FileNotFoundError:
            continue
    return found


def _copy_files(source: Path, target: Path, names: Iterable[Path]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def _misfit(log: EmbeddedLog, store: Path) -> str | None:
    """Why the log cannot bring this store up to date; None if it can."""
    topic = _topic(store)
    try:
        mark = mark_in(store)
        newest = log.snapshot([topic])
        extents = log.extents(topic)
    except HeadwaterError as error:
        return error.what
    if mark.number > newest.number or not newest.position.covers(mark.position):
        return f"it stands at {mark.position}, the log in the backup ends at {newest.position}"
    for partition, extent in extents.items():
        here = mark.position.offset(topic, partition)
        if 0 < here < max(extent.start, extent.horizon):
            return f"it stands at offset {here} of partition {partition}, which has since been compacted"
    return None
