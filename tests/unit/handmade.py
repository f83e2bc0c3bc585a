"""Views whose topics are written by hand, as pipelines write them: weighted rows with progress."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.log import Position, Progress, TopicSpec
from headwater.log.coverage import Made
from headwater.log.position import AppendNumber, Epoch
from headwater.log.protocol import Producer, Snapshot
from headwater.log.splitting import split
from headwater.process.cuts import Cuts
from headwater.process.job import Job
from headwater.process.source import Limits, newest_of

SCHEMA = pa.schema([("page", pa.string()), ("n", pa.int64())])


class HandMade:
    """One version of a view of pages and counts."""

    def __init__(
        self,
        log: hw.Log,
        name: str = "by_page",
        *,
        version: int = 1,
        inputs: tuple[str, ...] = ("clicks",),
        schema: pa.Schema = SCHEMA,
    ) -> None:
        topic = name if version == 1 else f"{name}.v{version}"
        self.log = log
        self.spec = log.create(TopicSpec(topic, schema, key=("page",), kind="table", partitions=2))
        self.made = Made(name, version, topic, f"{name}@{version}", inputs)
        self.rows: dict[str, int] = {}
        self._producer = log.begin(self.made.producer)
        self._sequence = 0
        self._end = Position()

    def batch(self, end: Position, **counts: int) -> Position:
        """These pages have these counts now (0: none any more), and `end` is covered; returns where its topic ends."""
        rows = []
        for page, n in counts.items():
            if page in self.rows:
                rows.append({"page": page, "n": self.rows.pop(page), "_weight": -1})
            if n:
                self.rows[page] = n
                rows.append({"page": page, "n": n, "_weight": 1})
        batch = pa.RecordBatch.from_pylist(rows, self.spec.stored)
        parts = [self.log.stage(self.spec.name, p, part) for p, part in split(batch, ("page",), 2).items()]
        progress, self._end = Progress(self._end, end), end
        self.log.append(parts, producer=self._producer, sequence=self._sequence, progress=progress)
        self._sequence += 1
        return self.log.snapshot([self.spec.name]).position


class Planned:
    """A view by hand that plans its batches as Spark's source does."""

    def __init__(self, log: hw.Log, folder: Path, view: HandMade) -> None:
        self.view = view
        self._log = log
        self._cuts = Cuts()
        made = view.made
        producer = Producer(made.producer, Epoch(0))
        folders = {"folder": str(folder / "pipelines" / made.name / "x"), "query": str(folder)}
        self._job = Job(made.name, log.url, producer, made.topic, inputs=made.inputs, **folders)

    def step(self, *, most: int | None = None, count: int | None = None) -> bool:
        """One batch, if there is something to read: the page `a` has that count now, or that of all records read."""
        covered = self._log.covered(self.view.made.producer)
        at = covered.progress.end if covered is not None else Position()
        after, limits = Snapshot(AppendNumber(0), at), Limits(rows=most)
        inputs = self.view.made.inputs
        newest = lambda topics: newest_of(self._log, topics, after, limits)  # noqa: E731
        end = self._cuts.planned(self._job, at, inputs, newest).end.position
        if end == at:
            return False
        self.view.batch(end, a=end.total if count is None else count)
        return True


class Versions:
    """Who makes which topic, as a registry would say it."""

    def __init__(self, *views: HandMade) -> None:
        self._of: dict[str, dict[int, Made]] = {}
        self._current: dict[str, int] = {}
        for view in views:
            self.add(view)

    def add(self, view: HandMade) -> None:
        self._of.setdefault(view.made.name, {})[view.made.version] = view.made
        self._current.setdefault(view.made.name, view.made.version)

    def switch(self, name: str, version: int) -> None:
        self._current[name] = version

    def drop(self, name: str, version: int) -> None:
        del self._of[name][version]

    def current(self, view: str) -> Made | None:
        return self._of.get(view, {}).get(self._current.get(view, 0))

    def version(self, view: str, number: int) -> Made | None:
        return self._of.get(view, {}).get(number)

    def made_by(self, topic: str) -> Made | None:
        return next((made for of in self._of.values() for made in of.values() if made.topic == topic), None)


def clicks(offset: int, partition: int = 0) -> Position:
    return Position.of({"clicks": {partition: offset}})


def both(one: Position, other: Position) -> Position:
    return Position.of({**one.as_dict(), **other.as_dict()})
