"""The offset of a query that several views share: what each has been planned to read, by the name of its producer.

    {"views": {producer: {"from": position, "append": number, "position": position, "again": times}, ...}}

A view takes part in a batch if its entry is another than in the batch before; `from` is where it begins there. So a
view may come, stay away and come back while the others go on; how far it is, is what the log says that it covers.
`again` counts how often the same range was planned, for one that stayed away when it was its turn.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import CheckpointLost
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Progress, Snapshot
from headwater.process.checkpoint import last_batch
from headwater.process.parked import park, parked, unpark

Offset = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    start: Position
    end: Snapshot
    again: int = 0

    @property
    def progress(self) -> Progress:
        return Progress(self.start, self.end.position)


def to_offset(entries: Mapping[str, Entry]) -> Offset:
    """As Spark keeps it: equal entries give equal JSON, for Spark compares texts."""
    return {
        "views": {
            name: {
                "from": str(entry.start),
                "append": entry.end.number,
                "position": str(entry.end.position),
                "again": entry.again,
            }
            for name, entry in sorted(entries.items())
        }
    }


def from_offset(offset: Offset) -> dict[str, Entry]:
    return {
        name: Entry(
            Position.parse(told["from"]),
            Snapshot(AppendNumber(told["append"]), Position.parse(told["position"])),
            told["again"],
        )
        for name, told in offset["views"].items()
    }


def taking_part(start: Mapping[str, Entry], end: Mapping[str, Entry]) -> dict[str, Entry]:
    """Those that read something in a batch between two offsets."""
    return {name: entry for name, entry in end.items() if start.get(name) != entry}


class SharedCheckpoint:
    """One view's part in Spark's checkpoint."""

    def __init__(self, folder: Path, producer: str) -> None:
        self.folder = folder
        self._producer = producer

    def last_planned(self) -> int | None:
        return last_batch(self.folder, "offsets")

    def last_done(self) -> int | None:
        return last_batch(self.folder, "commits")

    def entries(self, batch: int) -> dict[str, Entry]:
        try:
            return _read(self.folder, batch)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            why = f"{self.folder / 'offsets' / str(batch)} cannot be read: {error}"
            raise CheckpointLost(pipeline=self._producer, why=why) from error

    def progress(self, batch: int) -> Progress | None:
        entry = taking_part(self.entries(batch - 1), self.entries(batch)).get(self._producer)
        return entry.progress if entry is not None else None

    def begins(self, log: Log) -> Snapshot:
        covered = log.covered(self._producer)
        return Snapshot(AppendNumber(0), covered.progress.end if covered is not None else Position())

    def verify(self, log: Log) -> None:
        """Before a run: nothing that Spark has planned for the view, or believes done, goes beyond what the log has.

        It may lag behind: a view goes on where its last append in the log ended, and has its state from there. But a
        log that was restored may be the older one: then state and answer are not those that Spark has seen.
        """
        batch, done = self.last_planned(), log.covered(self._producer)
        entry = self.entries(batch).get(self._producer) if batch is not None else None
        ended = done.progress.end if done is not None else Position()
        if batch is None or entry is None or ended.covers(entry.end.position):
            return
        now, finished = self.progress(batch), self.last_done()
        left = parked(self.folder.parent, self._producer)
        if ended == entry.start and left is not None and left.progress == entry.progress:
            pass
        elif now is None or (finished is not None and finished >= batch):
            raise self._lost(f"it says that a batch up to {entry.end.position} is done, which the log does not have")
        elif now.start != ended:
            raise self._lost(f"batch {batch} does not begin where the log's last batch ended")
        self._verify_end(log, batch, entry.end.position)

    def _verify_end(self, log: Log, batch: int, end: Position) -> None:
        known = {spec.name for spec in log.topics()}
        there = log.snapshot([name for name in end.topics if name in known]).position
        if not there.covers(end):
            raise self._lost(f"batch {batch} reads up to {end}, the log ends at {str(there) or 'nothing'}")

    def _lost(self, why: str) -> CheckpointLost:
        return CheckpointLost(pipeline=self._producer, why=why)


def _read(checkpoint: Path, batch: int) -> dict[str, Entry]:
    if batch < 0:
        return {}
    return from_offset(json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]))


def views_in(checkpoint: Path) -> list[str] | None:
    """The producers that a checkpoint tells of; None if it is of another kind, or cannot be read."""
    batch = last_batch(checkpoint, "offsets")
    try:
        return list(_read(checkpoint, batch)) if batch is not None else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def leave_behind(checkpoint: Path, present: Container[str]) -> None:
    """Before a query starts: a batch that Spark will run again passes by those that are not in the query any more."""
    batch = last_batch(checkpoint, "offsets")
    if batch is None or batch == last_batch(checkpoint, "commits"):
        return
    for name, entry in taking_part(_read(checkpoint, batch - 1), _read(checkpoint, batch)).items():
        if name in present:
            unpark(checkpoint.parent, name)
        else:
            why = "it was not in the code when its query went on"
            park(checkpoint.parent, name, entry.progress, why)
