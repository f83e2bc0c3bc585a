"""Reading Spark's checkpoint: which input range a batch has. Only reading; Spark alone writes it.

offsets/<batch>   'v1', a line of settings, then one line of JSON a source: written before the batch runs (step 1)
commits/<batch>   written when it is done (step 6)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from headwater.errors import CheckpointLost
from headwater.log.position import START, AppendNumber, Position
from headwater.log.protocol import Covered, Log, Progress, Snapshot

BEFORE_FIRST = -1
"""The sequence of the append without records by which a pipeline that does not begin at the start says where."""


def to_offset(snapshot: Snapshot) -> dict[str, object]:
    """As Spark keeps it: equal snapshots give equal JSON, for Spark compares texts."""
    return {"append": snapshot.number, "position": str(snapshot.position)}


def from_offset(offset: dict[str, object]) -> Snapshot:
    return Snapshot(AppendNumber(int(str(offset["append"]))), Position.parse(str(offset["position"])))


def last_batch(checkpoint: Path, kind: Literal["offsets", "commits"]) -> int | None:
    folder = checkpoint / kind
    batches = [int(file.name) for file in folder.iterdir() if file.name.isdigit()] if folder.is_dir() else []
    return max(batches, default=None)


def clear_if_unused(checkpoint: Path) -> None:
    """Before a query starts: a run that ended while Spark wrote down its first batch leaves a file behind, because of
    which Spark would refuse to start (`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`)."""
    if last_batch(checkpoint, "offsets") is None:
        shutil.rmtree(checkpoint, ignore_errors=True)


class Planned(Protocol):
    """What Spark has planned for a pipeline, whatever the form of its offsets."""

    def last_planned(self) -> int | None: ...

    def last_done(self) -> int | None: ...

    def progress(self, batch: int) -> Progress | None:
        """The pipeline's inputs of a batch that Spark has planned; None if it has no part in it."""

    def begins(self, log: Log) -> Snapshot:
        """Where the next batch begins, or the last one, which Spark may run again."""

    def verify(self, log: Log) -> None:
        """Raises `CheckpointLost` if Spark would not go on where the log's last append of the pipeline ended."""


def under_way(planned: Planned) -> tuple[int, Progress] | None:
    """The batch that is planned and not done, and what the pipeline reads in it."""
    batch = planned.last_planned()
    progress = planned.progress(batch) if batch is not None and batch != planned.last_done() else None
    return (batch, progress) if batch is not None and progress is not None else None


class Checkpoint:
    """Of a query for one pipeline."""

    def __init__(self, folder: Path, producer: str, begin: Position = START) -> None:
        self.folder = folder
        self._producer = producer
        self._begin = Snapshot(AppendNumber(0), begin)

    def progress(self, batch: int) -> Progress:
        """The inputs of a batch that Spark has planned: after the batch before it, up to its own end."""
        return Progress(self.end(batch - 1).position, self.end(batch).position)

    def last_planned(self) -> int | None:
        return last_batch(self.folder, "offsets")

    def last_done(self) -> int | None:
        return last_batch(self.folder, "commits")

    def begins(self, log: Log) -> Snapshot:
        planned = self.last_planned()
        return self.end(planned - 1 if planned is not None else -1)

    def end(self, batch: int) -> Snapshot:
        """Where a batch ends: of several sources, all their topics; of one topic's several, the least."""
        if batch < 0:
            return self._begin
        path = self.folder / "offsets" / str(batch)
        try:
            sources = [from_offset(json.loads(line)) for line in path.read_text().splitlines()[2:] if line != "-"]
            number = max(source.number for source in sources)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointLost(pipeline=self._producer, why=f"{path} cannot be read: {error}") from error
        ends: dict[str, Position] = {}
        for source in sources:
            for topic in source.position.topics:
                own = source.position.only([topic])
                ends[topic] = min(ends.get(topic, own), own, key=lambda position: position.total)
        position = Position.of({topic: own.as_dict()[topic] for topic, own in ends.items()})
        return Snapshot(number, position)

    def verify(self, log: Log) -> None:
        """Before a run: what the checkpoint plans next must go on where the log's last append of this producer ended.

        Spark does not sync its checkpoint to disk, so after a power cut, a deletion or a restore it may lag behind; and
        a restored log may lag behind it: then it plans what the log cannot give, or believes done what is not there.
        """
        producer = self._producer
        done: Covered | None = log.covered(producer)
        planned = self.last_planned()
        begun = log.covered(producer, sequence=BEFORE_FIRST)
        if begun is not None:
            self._begin = Snapshot(AppendNumber(0), begun.progress.end)

        def lost(why: str) -> CheckpointLost:
            return CheckpointLost(pipeline=producer, why=why)

        if done is None:
            if planned not in (None, 0):
                raise lost(f"it has batch {planned}, the log has none")
        elif planned is None:
            if done.sequence != BEFORE_FIRST:
                raise lost(f"it is gone, the log has batch {done.sequence}")
        elif planned == done.sequence:
            if self.progress(planned) != done.progress:
                raise lost(f"batch {planned} is for other inputs than the one in the log")
        elif planned == done.sequence + 1:
            if self.progress(planned).start != done.progress.end:
                raise lost(f"batch {planned} does not begin where the log's last batch ended")
        else:
            raise lost(f"it stands at batch {planned}, the log at {done.sequence}")
        self._verify_ends(log, done, planned, lost)

    def _verify_ends(
        self, log: Log, done: Covered | None, planned: int | None, lost: Callable[[str], CheckpointLost]
    ) -> None:
        """What it says is done stands in the log, and so does what it plans to read."""
        finished = self.last_done()
        if finished is not None and (done is None or finished > done.sequence):
            raise lost(f"it says that batch {finished} is done, which the log does not have")
        if planned is not None:
            end = self.progress(planned).end
            known = {spec.name for spec in log.topics()}
            there = log.snapshot([name for name in end.topics if name in known]).position
            if not there.covers(end):
                raise lost(f"batch {planned} reads up to {end}, the log ends at {str(there) or 'nothing'}")
