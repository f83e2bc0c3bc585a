"""The topic in which the versions of pipelines are kept, and the rule by which it is changed.

`_headwater.pipelines` is an upsert table with the key (name, version) in one partition. An act is one append. Every
append also writes the row ("", 0), the counter of appends, and expects it to be as it was read: of two processes that
act at once, one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headwater.clock import Clock
from headwater.errors import TopicNotFound, VersionConflict, VersionsRaced
from headwater.log.protocol import Log
from headwater.log.spec import INTERNAL, TopicSpec
from headwater.log.topic import Topic
from headwater.process.version import Version
from headwater.records import schema_of

TOPIC = f"{INTERNAL}pipelines"
COLUMNS = {
    "name": "string",
    "version": "int64",
    "app": "string",
    "fingerprint": "string",
    "description": "string",
    "inputs": "string",
    "topic": "string",
    "state": "string",
    "from_retained": "bool",
    "made_at": "timestamp",
    "changed_at": "timestamp",
    "appends": "int64",
}
SPEC = TopicSpec(
    TOPIC, schema_of(COLUMNS), key=("name", "version"), kind="table", partitions=1, upsert=True, versioned=True
)
COUNTER = ("", 0)


@dataclass(frozen=True)
class Book:
    """All rows as of one position, and how many appends had made them."""

    versions: Mapping[str, list[Version]]
    appends: int
    adopted: tuple[Version, ...]

    def of(self, name: str) -> list[Version]:
        return self.versions.get(name, [])

    def current(self, name: str) -> Version | None:
        return next((each for each in self.of(name) if each.state == "current"), None)

    def read_as(self, name: str) -> str:
        """The topic to read for an input that the code calls so."""
        current = self.current(name)
        return current.topic if current is not None else name


class Registry:
    def __init__(self, log: Log, *, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def read(self, adopt: Sequence[Version] = ()) -> Book:
        """`adopt` are versions that are there though no row says so; those that have rows are left aside."""
        try:
            records = Topic(self._log, self._log.topic(TOPIC)).read().to_pylist()
        except TopicNotFound:
            records = []
        newest = {(record["name"], record["version"]): record for record in records}
        counter = newest.pop(COUNTER, {"appends": 0})
        versions: dict[str, list[Version]] = {}
        for key in sorted(newest):
            versions.setdefault(key[0], []).append(_version(newest[key]))
        adopted = tuple(each for each in adopt if each.name not in versions)
        for each in adopted:
            versions[each.name] = [each]
        return Book(versions, counter["appends"], adopted)

    def write(self, book: Book, changed: Sequence[Version]) -> list[Version]:
        """All of it, in one append, if nobody has written since `book` was read; else `VersionsRaced`."""
        now = datetime.fromtimestamp(self._clock() / 1_000_000, UTC)
        names, written = {each.name for each in changed}, {(each.name, each.version) for each in changed}
        adopted = [each for each in book.adopted if each.name in names and (each.name, each.version) not in written]
        rows = [replace(each, made_at=each.made_at or now, changed_at=now) for each in (*adopted, *changed)]
        counter = dict(zip(SPEC.key, COUNTER, strict=True)) | {"appends": book.appends + 1}
        topic = Topic(self._log, self._log.create(SPEC))
        try:
            topic.append([counter, *(_row(each) for each in rows)], expect={COUNTER: book.appends})
        except VersionConflict as error:
            raise VersionsRaced(view=changed[0].name) from error
        return rows[len(adopted) :]


def _row(version: Version) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "app": version.app,
        "fingerprint": version.fingerprint,
        "description": json.dumps(version.description),
        "inputs": json.dumps(version.inputs),
        "topic": version.topic,
        "state": version.state,
        "from_retained": version.from_retained,
        "made_at": version.made_at,
        "changed_at": version.changed_at,
    }


def _version(record: Mapping[str, Any]) -> Version:
    return Version(
        record["name"],
        record["version"],
        record["fingerprint"],
        json.loads(record["description"]),
        json.loads(record["inputs"]),
        record["state"],
        record["app"],
        record["from_retained"],
        record["made_at"],
        record["changed_at"],
    )
