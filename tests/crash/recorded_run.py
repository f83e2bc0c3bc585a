"""Run under the recording disk: appends and upkeep of every kind, with a mark before each act and one after it.

    {"begin": act, ...}   what it is about to do
    {"done": act, ...}    it was told that this is safe, and where things are

Each run is a fork of this process, so that imports are paid once. In some the log has a bug, planted before the first
act: the test must then find what is lost.
"""

from __future__ import annotations

import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd  # noqa: F401  (pyarrow imports it at its first array: once here, not in every fork)
import pyarrow as pa

from headwater.log import Producer, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, catalog
from headwater.log.embedded.catalog import Catalog
from headwater.log.embedded.disk import Disk
from headwater.log.position import Epoch
from headwater.records import schema_of
from headwater.testing.faulty_disk import Fault, arm, disarm
from headwater.testing.recording_disk import mark, record

CLICKS = TopicSpec("clicks", schema_of({"number": "int64", "page": "string"}), key=("number",), partitions=2)
EVENTS = TopicSpec("events", schema_of({"number": "int64"}), partitions=1)
USERS = TopicSpec(
    "users", schema_of({"user_id": "int64", "name": "string"}), key=("user_id",), kind="table", partitions=1
)
FIRST = Producer("several", Epoch(1))
LARGE = 700
"""So many clicks are a chunk file."""


def page(number: int) -> str:
    """Of each number its own, so that what was forgotten can be looked for in any file."""
    return f"/the/page/of/{number};".ljust(100, ".")


class Run:
    """Numbers of clicks and events are used once; the user has one name at a time, the newest."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        for spec in (CLICKS, EVENTS, USERS):
            with self.act("create", topic=spec.name):
                log.create(spec)
        self.clicks, self.events, self.users = (Topic(log, spec) for spec in (CLICKS, EVENTS, USERS))
        self.producer = log.begin("several")
        self.next = 0
        self.sequence = 0
        self.name: str | None = None

    @contextmanager
    def act(self, what: str, **intent: Any) -> Iterator[dict[str, Any]]:
        told: dict[str, Any] = {}
        mark({"begin": what, **intent})
        yield told
        mark({"done": what, **told})

    def _numbers(self, count: int) -> range:
        self.next += count
        return range(self.next - count, self.next)

    def append_singles(self, count: int) -> None:
        for number in self._numbers(count):
            with self.act("append", clicks=[number]) as told:
                position = self.clicks.append([{"number": number, "page": page(number)}])
                told["ends"] = position.as_dict()

    def append_large(self, partition: int) -> None:
        numbers = self._numbers(LARGE)
        rows = pa.table({"number": numbers, "page": [page(number) for number in numbers]})
        with self.act("append", clicks=list(numbers)) as told:
            told["ends"] = self.clicks.append(rows, partition=partition).as_dict()

    def append_to_several(self) -> None:
        (number,) = self._numbers(1)
        was, self.name = self.name, f"n{number}"
        intent = {"clicks": [number], "events": [number], "name": self.name, "was": was, "sequence": self.sequence}
        with self.act("append", **intent) as told:
            told["ends"] = append_to_several(self.log, self.producer, intent).position.as_dict()
        self.sequence += 1

    def roll_up(self) -> None:
        with self.act("roll_up"):
            for topic in ("clicks", "events", "users"):
                self.log.upkeep.roll_up(topic, least_chunks=2)

    def compact(self) -> None:
        with self.act("compact"):
            self.log.upkeep.compact("users")

    def archive(self, folder: Path) -> None:
        with self.act("archive"):
            self.log.upkeep.archive("clicks", f"file://{folder}")

    def retain(self) -> None:
        with self.act("retain") as told:
            self.log.alter("events", settings=Settings(retain_bytes=600))
            self.log.upkeep.retain("events")
            told["start"] = self.log.extents("events")[0].start

    def collect(self) -> None:
        with self.act("collect"):
            self.log.upkeep.collect_garbage(grace_s=-1)

    def forget(self, numbers: list[int]) -> None:
        with self.act("forget", numbers=numbers) as told:
            self.log.upkeep.forget("clicks", keys=[{"number": number} for number in numbers])
            told["files"] = sorted(path.name for path in self.log.root.parent.rglob("chunks/clicks/*"))


def append_to_several(log: EmbeddedLog, producer: Producer, intent: dict[str, Any]) -> Any:
    """A click, an event and the user's new name in place of the old one, in one append that may be repeated."""
    clicks, events, users = (Topic(log, spec) for spec in (CLICKS, EVENTS, USERS))
    names = [{"user_id": 1, "name": intent["name"]}]
    if intent["was"] is not None:
        names.append({"user_id": 1, "name": intent["was"], "_weight": -1})
    parts = [
        *clicks.parts([{"number": number, "page": page(number)} for number in intent["clicks"]]),
        *events.parts([{"number": number} for number in intent["events"]]),
        *users.parts(names),
    ]
    return log.append(parts, producer=producer, sequence=intent["sequence"])


def everything(world: Path) -> None:
    """Small, large, several topics; then each kind of upkeep, with appends in between; closed and opened on the way."""
    run = appends(world)
    run.roll_up()
    run.append_large(1)
    run.compact()
    run.append_to_several()
    run.forget([7, 57])
    run.append_singles(2)
    run.archive(world / "cold")
    run.collect()
    run.retain()
    run.append_to_several()
    run.log.close()
    run.log = EmbeddedLog(world / "log")
    run.clicks = Topic(run.log, CLICKS)
    run.append_to_several()
    run.append_singles(2)
    run.forget([run.next - 1, LARGE + 7])  # one that still stands in the WAL, one that was rolled up
    run.roll_up()
    run.collect()
    run.append_large(0)
    run.log.close()


def appends(world: Path) -> Run:
    run = Run(EmbeddedLog(world / "log"))
    run.append_singles(3)
    run.append_large(0)
    for _ in range(3):
        run.append_to_several()
    run.append_singles(5)
    return run


def appends_and_removals(world: Path) -> None:
    run = appends(world)
    run.forget([7, run.next - 1])
    run.archive(world / "cold")


def killed_and_repeated(world: Path) -> None:
    """Appends that die at one act on files or another, most of them around the sync of the commit. Each is repeated by
    another process, which finds it there already, perhaps in memory only, or appends it."""
    folder = world / "log"
    in_fork(partial(appends, world))
    acts, was = 0, f"n{LARGE + 5}"
    for place in range(6):
        number = 10_000 + place
        intent = {"clicks": [number], "events": [number], "name": f"n{number}", "was": was, "sequence": number}
        nth = acts - 4 + place if acts else 0
        mark({"begin": "append", **intent})
        ended = in_fork(partial(_append_and_die, folder, intent, nth))
        acts = acts or ended
        in_fork(partial(_repeat, folder, intent))
        was = intent["name"]


def _append_and_die(folder: Path, intent: dict[str, Any], nth: int) -> None:
    """At the nth act on files; with 0, it lives and exits with the number of acts."""
    log = EmbeddedLog(folder)
    arm(folder, nth, Fault.DIES)
    append_to_several(log, FIRST, intent)
    os._exit(disarm())


def _repeat(folder: Path, intent: dict[str, Any]) -> None:
    done = append_to_several(EmbeddedLog(folder), FIRST, intent)
    mark({"done": "append", "ends": done.position.as_dict(), "repeated": done.repeated})
    os._exit(0)  # without closing the log, which would sync it


def commits_without_sync() -> None:
    real = Catalog._connect

    def planted(self: Catalog) -> Any:
        connection = real(self)
        connection.pragma("synchronous", "OFF")
        return connection

    Catalog._connect = planted  # type: ignore[method-assign]


def chunks_without_sync() -> None:
    def planted(self: Disk, file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            os.fsync(file)

    Disk.sync = planted  # type: ignore[method-assign]


def names_of_chunks_without_sync() -> None:
    real = Disk.sync_path

    def planted(self: Disk, path: Path) -> None:
        if path.parent.name != "chunks":
            real(self, path)

    Disk.sync_path = planted  # type: ignore[method-assign]


def names_of_folders_without_sync() -> None:
    Disk._sync_names_of_folders = lambda self, folder: None  # type: ignore[method-assign]


def the_log_itself_without_sync() -> None:
    Disk.make_root = lambda self: self.root.mkdir()  # type: ignore[method-assign]


def removals_without_sync() -> None:
    Disk.sync_removed = lambda self, names: None  # type: ignore[method-assign]


def archive_without_sync() -> None:
    real = Disk.write

    def planted(self: Disk, name: str, data: pa.Buffer) -> None:
        (self._write_remote if "://" in name else partial(real, self))(name, data)

    Disk.write = planted  # type: ignore[method-assign]


def wal_without_sync() -> None:
    Catalog._sync_wal = lambda self: None  # type: ignore[method-assign]


def nothing() -> None:
    """A log as it should be."""


RUNS: dict[str, tuple[Callable[[], None], Callable[[Path], Any]]] = {
    "everything": (nothing, everything),
    "killed and repeated": (nothing, killed_and_repeated),
    "commits": (commits_without_sync, appends),
    "chunks": (chunks_without_sync, appends),
    "names of chunks": (names_of_chunks_without_sync, appends),
    "names of folders": (names_of_folders_without_sync, appends),
    "the log itself": (the_log_itself_without_sync, appends),
    "removals": (removals_without_sync, appends_and_removals),
    "archive": (archive_without_sync, appends_and_removals),
    "truncated WAL": (wal_without_sync, appends_and_removals),
    "WAL that was left": (wal_without_sync, killed_and_repeated),
}


def in_fork(work: Callable[[], Any]) -> int:
    """Its exit status, or the signal that ended it, negative."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  (whatever it is: told, and the fork must not go on as its parent)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    catalog.CHECKPOINT_PAGES = 40  # so that a short run has the WAL moved into the main file several times
    for name in sys.argv[2:]:
        folder = Path(sys.argv[1]) / name
        (folder / "world").mkdir(parents=True)
        plant, work = RUNS[name]

        def run(folder: Path = folder, plant: Any = plant, work: Any = work) -> None:
            plant()
            record(folder / "world", folder / "journal")
            work(folder / "world")

        if in_fork(run) != 0:
            sys.exit(f"{name} has failed")


if __name__ == "__main__":
    main()
