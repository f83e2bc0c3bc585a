"""A data folder as an app leaves it, without Spark: views over clicks, with a person's name in every kind of file."""

from __future__ import annotations

import json
from pathlib import Path

import headwater as hw
from headwater.log import Progress, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Snapshot
from headwater.process.keyed.deadletters import SCHEMA as DEAD
from headwater.process.keyed.offsets import Entry, to_offset
from headwater.process.lineage import Declared
from headwater.process.parked import park
from headwater.process.side import LATE
from headwater.process.version import Version
from headwater.process.versions import Versions
from headwater.records import schema_of
from headwater.serve.store import Mark
from headwater.serve.stores.sqlite import SqliteStore

CANARY = "erika.mustermann@example.org"
ERIKA = {"user_id": 7}
ROWS = schema_of({"who": "string"})
NO_STATE = '{"operators": {}, "buckets": {}}'


class Planted:
    """`by_page` and `by_user` read clicks, `top` reads `by_user`, `rooms` reads visits. All but `by_user`, which has a
    query of its own, share one, in which an older Headwater kept their state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EmbeddedLog(folder)
        columns = schema_of({"user_id": "int64", "page": "string"})
        self.clicks = Topic(self.log, self.log.create(TopicSpec("clicks", columns, key=("user_id",), partitions=2)))
        self.visits = Topic(
            self.log, self.log.create(TopicSpec("visits", schema_of({"room": "string"}), key=("room",)))
        )
        self.versions = Versions(self.log, app="shop")

    def fill(self) -> None:
        self.clicks.append([{"user_id": user, "page": _page(user)} for user in range(3000)])
        self.clicks.append([{"user_id": user, "page": _page(user)} for user in range(10)])
        self.visits.append([{"room": "kitchen"}])
        queues = EmbeddedQueues(self.log)
        queues.create("work", "clicks")
        for delivery in queues.take("work", 10_000):
            if delivery.record["user_id"] in (7, 8):
                queues.reject("work", delivery.receipt)
        for name, read in {"by_page": "clicks", "by_user": "clicks", "top": "by_user", "rooms": "visits"}.items():
            self.versions.declare(Declared(name, f"{name}-code", {"buckets": 4}, (read,)))
            self.plant(self.version(name))
        self.share("by_page", "top", "rooms")

    def version(self, name: str) -> Version:
        found = self.versions.current(name)
        assert found is not None
        return found

    def plant(self, version: Version) -> None:
        """As if it had run: rows in its topic, late records, dead letters, state, cache, store."""
        log, root, text = self.log, self.folder, _text(version)
        producer = log.begin(version.producer)
        topic = Topic(log, log.create(TopicSpec(version.topic, ROWS, kind="table", partitions=1)))
        ends = log.snapshot(list(version.inputs.values())).position
        parts = topic.parts([{"who": f"{text} {number}", "_weight": 1} for number in range(3000)], producer=producer)
        log.append(parts, producer=producer, sequence=0, progress=Progress(Position(), ends))
        log.pin(version.producer, ends, topics=list(version.inputs.values()))
        for side, schema in (("late", LATE), ("dead", DEAD)):
            beside = Topic(log, log.create(TopicSpec(f"{version.topic}.{side}", schema, partitions=1)))
            beside.append([{"record": text}])
        files = {"kept/chunks/5e1f": text, f"kept/0-{producer.epoch}.json": NO_STATE, "cache/table": text}
        if version.name == "by_user":
            files["checkpoint/state/0/1.changelog"] = text
        _write(version.folder(root), files)
        store = SqliteStore(version.store(root), ROWS, ())
        store.apply(topic.read().select(["who", "_weight"]), Mark(AppendNumber(1), ends, ends))
        store.close()

    def share(self, *names: str) -> None:
        """As if these had been in one query, each was parked there once, and the run was killed."""
        query, versions = self.folder / "queries" / "shop-1", [self.version(name) for name in names]
        entries = {each.producer: Entry(Position(), self._read_by(each)) for each in versions}
        offsets = json.dumps(to_offset(entries))
        files = {
            "checkpoint/offsets/0": f"v1\n{{}}\n{offsets}",
            "checkpoint/commits/0": "v1\n{}",
            "checkpoint/state/1.changelog": CANARY,
            "parcels/7a": CANARY,
        }
        _write(query, files)
        for each in versions:
            park(query, each.producer, entries[each.producer].progress, f"cannot cast {_text(each)!r}")
        (self.folder / "spark.log").write_text(CANARY)

    def _read_by(self, version: Version) -> Snapshot:
        covered = self.log.covered(version.producer)
        assert covered is not None
        return Snapshot(AppendNumber(1), covered.progress.end)

    def close(self) -> None:
        self.log.close()


def make(folder: Path) -> Path:
    """To be copied by tests: making it takes longer than most of them."""
    made = Planted(folder)
    made.fill()
    made.close()
    return folder


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _text(version: Version) -> str:
    return "kitchen" if version.name == "rooms" else CANARY


def _page(user: int) -> str:
    return f"/{CANARY}" if user == 7 else f"/page/of/{user}"


def files_with_canary(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and CANARY.encode() in file.read_bytes()
    }


def others(log: hw.Log) -> list[int]:
    return sorted(row["user_id"] for row in Topic(log, log.topic("clicks")).read().to_pylist())
