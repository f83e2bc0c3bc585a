"""Forgetting a person: out of a topic, and out of everything that was made from it.

    1  Nobody runs over the folder. What the records have reached is looked up; what cannot be done is refused.
    2  One append: versions that were made from them are dropped, and those that count begin again. From here on nobody
       goes on with state that has seen the records.
    3  The records are excised: from the topic, and from the dead-letter topics of its queues; of a decider's topic also
       the ids of its commands, the names that it held, and the file beside the log.
    4  What the dropped versions left goes for good: topics, late records, dead letters, state, checkpoints, stores. A
       Spark query that they shared with others stays: of them it knows positions alone.
    5  The report is written. It has no data in it.
    6  With an app, its pipelines run until they have caught up: views are built again, from a log that never knew.

A crash after any of these leaves what the next call does: it drops whatever has run since, and removes what is left of
whatever was dropped before. Why not by retraction: docs/decisions/0011-forgetting.md.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.app import App
from headwater.capture.current import rows_in
from headwater.decide.traces import traces
from headwater.errors import Pinned, PlanChanged, StillAtTheSource, UsageError
from headwater.forgotten import BuiltAgain, Remains, Removed, Report, sync_folder
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.log.embedded.upkeep.excision import of_keys
from headwater.log.spec import INTERNAL
from headwater.process.anew import what_begins_anew
from headwater.process.discard import discard, files_removed, left_by
from headwater.process.inuse import not_in_use
from headwater.process.keyed.parcels import FOLDER as PARCELS
from headwater.process.reach import Reach, reach_of, sides_of, topics_of
from headwater.process.version import Version, first_versions
from headwater.process.versions import Versions

if TYPE_CHECKING:
    from headwater.log.embedded.checking import Advance
    from headwater.log.protocol import Log

Say = Callable[[str], None]
SPARK_WORDS = "spark.log"
SPARK_FOLDERS = ("spark-*", "blockmgr-*")
ROWS_IN_QUERIES = (PARCELS, "checkpoint/state")
"""Of shared queries: rows that were on their way when a run was killed, and the state that older versions kept."""


def forget(
    where: App | Log,
    topic: str,
    *,
    keys: Sequence[Mapping[str, Any]],
    from_retained: bool = False,
    dry_run: bool = False,
    master: str | None = None,
    say: Say | None = None,
    advance: Advance | None = None,
) -> Report:
    """All records of these keys leave the topic and all that was made from it, through any number of steps.

    With an app, what begins again is built before this returns; with a log alone, by the next run of its app.
    `from_retained` allows views to be built from what retention has left of their inputs. Nothing is changed if it
    raises `AppRunning`, `InputsGone`, `NotASource` or `StillAtTheSource`; after anything else, call it again.
    """
    app, log = (where, where.log) if isinstance(where, App) else (None, where)
    if not isinstance(log, EmbeddedLog):
        raise UsageError(what="only a file: log can forget", do="Use the backend's own tools")
    act = _Forgetting(log, topic, keys, app, say or (lambda text: None))
    with ExitStack() as alone:
        if not dry_run:
            alone.enter_context(not_in_use(log.root))
        reach, going = act.look(from_retained=from_retained)
        if dry_run:
            return act.report(act.would_go(reach, going), act.again(reach), act.remaining(), dry_run=True)
        report = act.through(reach, going, from_retained=from_retained, advance=advance)
    report.write(log.root)
    if app is not None and any(each.view in app.derived for each in report.built_again):
        act.say("building views again from the log")
        app.run(until="caught-up", master=master, say=say)
        report = report.built(app.derived)
        report.write(log.root)
    return report


class _Forgetting:
    def __init__(
        self, log: EmbeddedLog, topic: str, keys: Sequence[Mapping[str, Any]], app: App | None, say: Say
    ) -> None:
        self.log = log
        self.topic = topic
        self.keys = keys
        self.app = app
        self.say = say
        self.versions = Versions(log, app=app.name if app is not None else "", found=first_versions(log.root))
        self._at = datetime.fromtimestamp(log.clock() / 1_000_000, UTC)

    # --- 1 ---

    def look(self, *, from_retained: bool) -> tuple[Reach, list[Version]]:
        if self.topic.startswith(INTERNAL):
            raise UsageError(what=f"topic {self.topic!r} is Headwater's own", do="Name a topic of yours")
        self.log.topic(self.topic)
        every = self.versions.all()
        reach = reach_of(self.topic, every, EmbeddedQueues(self.log).queues())
        of_keys(self.log.known(self.topic), self.keys)
        self._refuse_captured()
        going = what_begins_anew(self.log, self.log.root, every, reach, from_retained=from_retained)
        self._refuse_changed(going)
        return reach, going

    @property
    def _is_captured(self) -> bool:
        return self.app is not None and self.topic in self.app._running.captures.topics

    def _refuse_captured(self) -> None:
        if not self._is_captured:
            return
        known = self.log.known(self.topic)
        chosen = of_keys(known, self.keys)

        def within(rows: pa.RecordBatch) -> Any:
            return pa.array(np.asarray(chosen(pa.Table.from_batches([rows])), bool))

        if rows_in(self.log, known.spec, within).num_rows:
            raise StillAtTheSource(topic=self.topic)

    def _refuse_changed(self, going: Sequence[Version]) -> None:
        """Code that could not be run now could not build again what this throws away."""
        if self.app is None:
            return
        names = {each.name for each in going}
        for change in self.app.diff():
            if change.name in names and change.kind == "changed":
                raise PlanChanged(view=change.name, details=tuple(change.details))

    # --- 2 to 4 ---

    def through(
        self, reach: Reach, going: Sequence[Version], *, from_retained: bool, advance: Advance | None
    ) -> Report:
        self.say(f"dropping {len(going)} versions of views and streams that were made from {self.topic}")
        self.versions.begin_anew(going, from_retained=from_retained)
        self.say(f"removing records from {', '.join(reach.copies)}")
        removed, remains = [], []
        for name in reach.copies:
            done = self.log.upkeep.forget(name, keys=self.keys, advance=advance)
            removed.append(Removed(f"topic {name}", "records", done.records))
            remains += [_unlisted(file) for file in done.unlisted_files]
        removed += [self._emptied(name, "dead letters") for name in reach.letters]
        removed += self._traces_removed()
        self.say("removing topics, checkpoints and stores that they had reached")
        removed += self._removed(reach, going)
        remains += [*self._came_meanwhile(reach), *self.remaining()]
        return self.report(removed, self.again(reach), remains)

    def _traces_removed(self) -> Iterator[Removed]:
        for topic, keys in self._traces().items():
            done = self.log.upkeep.forget(topic, keys=keys)
            yield Removed(f"topic {topic}", "commands and names", done.records)
        handle = self.app.deciders.get(self._decider) if self.app is not None else None
        if handle is not None:
            for key in self.keys:
                handle.forget(str(key.get("id")))
            return
        beside = self.log.root / "deciders" / f"{self._decider}.db"
        for path in (beside.with_name(beside.name + suffix) for suffix in ("", "-wal", "-shm")):
            if path.exists():
                path.unlink()
                yield Removed(str(path.relative_to(self.log.root)), "all of it", 1)

    def _traces(self) -> Mapping[str, list[dict[str, Any]]]:
        return traces(self.log, self._decider, {str(key.get("id")) for key in self.keys})

    @property
    def _decider(self) -> str:
        """Whose events these are, if they are some: without the app, it is called like its topic."""
        declared = self.app.deciders.values() if self.app is not None else ()
        return next((each.spec.name for each in declared if each.spec.events_topic == self.topic), self.topic)

    def _removed(self, reach: Reach, going: Sequence[Version]) -> Iterator[Removed]:
        root, every = self.log.root, [each for of in self.versions.all().values() for each in of]
        living = {topic for each in every if each.state != "dropped" for topic in topics_of(each)}
        just_now = {each.producer for each in going}
        reached = {each.producer for each in reach.versions}
        dropped = [each for each in every if each.state == "dropped" and each.topic not in living]
        for version in dropped:
            self.log.unpin(version.producer)
        for version in dropped:
            what = f"all of version {version.version} of {version.name}"
            # What was dropped just now; by an earlier call, or by somebody else, and the removal was cut short.
            if version.producer in just_now or left_by(version, root):
                yield from self._discarded(version, what)
            if version.producer in reached:
                yield from self._sides_removed(version, what)
        for path in self._unowned():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            yield Removed(str(path.relative_to(root)), "all of it", 1)
        kinds = ("pipelines", "pipelines/*", "queries/*", "queries/*/*", "stores", "deciders")
        for folder in (root, *(path for kind in kinds for path in root.glob(kind))):
            if folder.is_dir():
                sync_folder(folder)

    def _unowned(self) -> list[Path]:
        """Files with rows of which nobody can tell whose they are, and which nobody needs."""
        names = (SPARK_WORDS, *(f"queries/*/{each}" for each in ROWS_IN_QUERIES))
        return [path for name in names for path in sorted(self.log.root.glob(name))]

    def _discarded(self, version: Version, what: str) -> Iterator[Removed]:
        root = self.log.root
        try:
            words = discard(self.log, version, root)
        except Pinned:  # somebody's queue, or a group that is just reading: the topic stays, without records
            yield self._emptied(version.topic, what)
            words = list(files_removed(version, root))
        for word in words:
            yield Removed(word.removeprefix(f"{root}/"), what, 1)

    def _sides_removed(self, version: Version, what: str) -> Iterator[Removed]:
        """Late records and dead letters; and what deleting a topic leaves for a while to those who read it."""
        from headwater.process.keyed.deadletters import SCHEMA as DEAD
        from headwater.process.side import LATE

        there = {spec.name: spec for spec in self.log.topics()}
        for topic in sides_of(version):
            if topic in there and there[topic].schema in (LATE, DEAD):
                try:
                    self.log.upkeep.delete_for_good([topic])
                    yield Removed(f"topic {topic}", what, 1)
                except Pinned:
                    yield self._emptied(topic, what)
        self.log.upkeep.delete_for_good([topic for topic in topics_of(version) if topic not in there])

    def _emptied(self, topic: str, what: str) -> Removed:
        everything = self.log.upkeep.forget(topic, condition=lambda rows: np.ones(rows.num_rows, bool))
        return Removed(f"topic {topic}", what, everything.records)

    # --- 5 ---

    def would_go(self, reach: Reach, going: Sequence[Version]) -> list[Removed]:
        root, there = self.log.root, {spec.name for spec in self.log.topics()}
        counted = {name: self.log.upkeep.count(name, keys=self.keys) for name in reach.copies}
        found = [Removed(f"topic {name}", "records", count) for name, count in counted.items()]
        found += [Removed(f"topic {name}", "dead letters", self._records(name)) for name in reach.letters]
        found += [
            Removed(f"topic {name}", "commands and names", self.log.upkeep.count(name, keys=keys))
            for name, keys in self._traces().items()
        ]
        for each in going:
            names = [f"topic {topic}" for topic in topics_of(each) if topic in there]
            names += [str(path.relative_to(root)) for path in left_by(each, root)]
            found += [Removed(name, f"all of version {each.version} of {each.name}", 1) for name in names]
        return found + [Removed(str(path.relative_to(root)), "all of it", 1) for path in self._unowned()]

    def again(self, reach: Reach) -> list[BuiltAgain]:
        """The versions that count, of all that was reached: also those that an earlier call has begun again."""
        names = {each.name for each in reach.versions}
        found = [current for name in sorted(names) if (current := self.versions.current(name)) is not None]
        return [BuiltAgain(each.name, each.version, each.app, built=False) for each in found]

    def remaining(self) -> list[Remains]:
        """What this does not reach, and until when it is there."""
        found = []
        left = [path for kind in SPARK_FOLDERS for path in Path(tempfile.gettempdir()).glob(kind)]
        if left:
            found.append(Remains(f"{len(left)} folders of Spark in {tempfile.gettempdir()}", _LEFT_BY_SPARK, _BY_HAND))
        if self._is_captured:
            found.append(Remains("the captured database", "its own backups, WAL or binlog", "it removes them"))
        return [*found, Remains(*_BACKUPS), Remains(*_READ)]

    def _came_meanwhile(self, reach: Reach) -> list[Remains]:
        came = sum(self.log.upkeep.count(name, keys=self.keys) for name in reach.copies)
        told = Remains(f"topic {self.topic}", f"{came} records that came meanwhile", "this is called again")
        return [told] if came else []

    def _records(self, topic: str) -> int:
        return sum(extent.end - extent.start for extent in self.log.extents(topic).values())

    def report(
        self,
        removed: Sequence[Removed],
        again: Sequence[BuiltAgain],
        remains: Sequence[Remains],
        *,
        dry_run: bool = False,
    ) -> Report:
        return Report(self.topic, len(self.keys), self._at, dry_run, tuple(removed), tuple(again), tuple(remains))


_LEFT_BY_SPARK = "working files of runs that were killed, or of Spark programs that run now"
_BY_HAND = "they are removed by hand, or with the machine's temporary files"
_BACKUPS = ("backups", "all that `headwater backup` copied before", "you remove them")
_READ = ("outside", "what consumers have read, and stores, webhooks or exports handed on", "they forget it themselves")


def _unlisted(file: str) -> Remains:
    return Remains(
        file, "an append under way, or cut short: it may hold such records", "upkeep, an hour after it ended"
    )
