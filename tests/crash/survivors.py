"""What must be found in a log after the current failed, from the marks that its run had made until then.

done       is there, once, where it was said to be; what was forgotten is in no file
under way  is there whole or not at all, in every topic; upkeep under way has changed nothing that can be read,
           but for the records that it is about to remove
and        `verify` finds no damage; what was under way can be repeated; appends go on
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.verify import verify
from headwater.testing.recording_disk import Act, Kind
from tests.crash.recorded_run import append_to_several, page

Place = tuple[int, int]
GOES_ON = 1_000_000


@dataclass
class Expected:
    """Grows with every act of the journal."""

    topics: set[str] = field(default_factory=set)
    clicks: dict[int, Place] = field(default_factory=dict)
    events: dict[int, Place] = field(default_factory=dict)
    events_start: int = 0
    name: str | None = None
    forgotten: set[int] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    """Names of chunk files."""
    gone: set[str] = field(default_factory=set)
    """Those that forgetting has removed."""
    last: dict[str, Any] | None = None
    """The last append to several topics that was acknowledged."""
    under_way: dict[str, Any] = field(default_factory=dict)

    def take(self, act: Act) -> None:
        if act.kind is Kind.CREATED and "/chunks/clicks/" in act.path:
            self.made.add(Path(act.path).name)
        elif act.kind is Kind.MARK:
            self._take_mark(act.marked)

    def _take_mark(self, mark: dict[str, Any]) -> None:
        if "begin" in mark:
            self.under_way = mark
            return
        begun, self.under_way = self.under_way, {}
        match mark["done"]:
            case "create":
                self.topics.add(begun["topic"])
            case "append":
                self.clicks.update(_places(begun["clicks"], mark["ends"]["clicks"]))
                if "events" in begun:
                    self.events.update(_places(begun["events"], mark["ends"]["events"]))
                    self.name, self.last = begun["name"], begun
            case "retain":
                self.events_start = mark["start"]
            case "forget":
                self.forgotten |= set(begun["numbers"])
                for number in begun["numbers"]:
                    self.clicks.pop(number, None)
                self.gone |= self.made - set(mark["files"])

    def findings(self, world: Path) -> list[str]:
        """What is wrong with the log in this world; it is written to."""
        root = world / "log"
        if not root.is_dir():
            return ["the log's folder is gone"] if self.topics else []
        try:
            left = [
                *self._left_behind(world),
                *(f"verify: {found}" for found in verify(root).findings if found.serious),
            ]
            log = EmbeddedLog(root)
        except HeadwaterError as error:
            return [f"it does not open: {error!r}"]
        try:
            return [*left, *self._lost(log)] or list(self._stuck(log))
        except HeadwaterError as error:
            return [*left, f"it cannot be used: {error!r}"]
        finally:
            log.close()

    def _left_behind(self, world: Path) -> Iterator[str]:
        """Bytes that were forgotten, and files that held them."""
        for path in sorted(path for path in world.rglob("*") if path.is_file()):
            content = path.read_bytes()
            for number in sorted(self.forgotten):
                if page(number).encode() in content:
                    yield f"click {number} was forgotten, and {path.name} has it"
            if path.name in self.gone:
                yield f"{path.name} was removed for good, and is back"

    def _lost(self, log: EmbeddedLog) -> Iterator[str]:
        there = {spec.name for spec in log.topics()}
        if self.topics - there:
            yield f"topics {sorted(self.topics - there)} are gone"
            return
        coming = self.under_way if self.under_way.get("begin") == "append" else {}
        going = set(self.under_way["numbers"]) if self.under_way.get("begin") == "forget" else set()
        arrived = set()
        if "clicks" in there:
            found = _read(log, "clicks")
            yield from _compared("click", self.clicks, found, coming.get("clicks", []), going)
            arrived |= {number in found for number in coming.get("clicks", [])}
        if "events" in there:
            found, start = _read(log, "events"), log.extents("events")[0].start
            if start < self.events_start or (start > self.events_start and self.under_way.get("begin") != "retain"):
                yield f"events begin at {start}, not at {self.events_start}"
            kept = {number: place for number, place in self.events.items() if place[1] >= start}
            yield from _compared("event", kept, found, coming.get("events", []), set())
            arrived |= {number in found for number in coming.get("events", [])}
        if "users" in there:
            names = _names(log)
            if "name" in coming and names == {coming["name"]}:
                arrived.add(True)
            elif names == ({self.name} if self.name else set()):
                arrived |= {False} if "name" in coming else set()
            else:
                yield f"the user's names are {sorted(names)}, not {self.name}"
        if len(arrived) > 1:
            yield f"of the append under way ({coming}) a part is there, and a part is not"

    def _stuck(self, log: EmbeddedLog) -> Iterator[str]:
        """What was under way is repeated, what is done is repeated, something new is appended."""
        if "users" not in self.topics:
            return
        producer = log.begin("several")
        if self.last is not None and not append_to_several(log, producer, self.last).repeated:
            yield f"append {self.last['sequence']} was acknowledged, and is not known any more"
        if self.under_way.get("begin") == "append" and "name" in self.under_way:
            append_to_several(log, producer, self.under_way)
            if _names(log) != {self.under_way["name"]} or self.under_way["clicks"][0] not in _read(log, "clicks"):
                yield f"append {self.under_way['sequence']} was repeated, and is not there once"
        Topic(log, log.topic("clicks")).append([{"number": GOES_ON, "page": ""}])
        if GOES_ON not in _read(log, "clicks"):
            yield "what is appended afterwards is not there"


def _places(numbers: list[int], ends: dict[str, int]) -> dict[int, Place]:
    ((partition, end),) = ends.items()
    return {number: (int(partition), end - len(numbers) + place) for place, number in enumerate(numbers)}


def _read(log: EmbeddedLog, topic: str) -> dict[int, list[Place]]:
    table = Topic(log, log.topic(topic)).read()
    found: dict[int, list[Place]] = {}
    columns = (table[name].to_pylist() for name in ("number", "_partition", "_offset"))
    for number, partition, offset in zip(*columns, strict=True):
        found.setdefault(number, []).append((partition, offset))
    return found


def _names(log: EmbeddedLog) -> set[str]:
    weights: dict[str, int] = {}
    table = Topic(log, log.topic("users")).read()
    for name, weight in zip(table["name"].to_pylist(), table["_weight"].to_pylist(), strict=True):
        weights[name] = weights.get(name, 0) + weight
    return {name for name, weight in weights.items() if weight}


def _compared(
    what: str, expected: dict[int, Place], found: dict[int, list[Place]], coming: list[int], going: set[int]
) -> Iterator[str]:
    lost = [number for number in expected if number not in found and number not in going]
    if lost:
        yield f"{what} {lost[0]} was acknowledged and is lost, as are {len(lost) - 1} others"
    for number, places in found.items():
        if len(places) > 1:
            yield f"{what} {number} is there {len(places)} times"
        elif number in expected and places[0] != expected[number]:
            yield f"{what} {number} is at {places[0]}, it was said to be at {expected[number]}"
        elif number not in expected and number not in coming:
            yield f"{what} {number} is there, and should not be"
