"""Reading Spark's checkpoint: which input range a batch has. Only reading; Spark alone writes it.

offsets/<batch>   'v1', a line of settings, then one line of JSON a source: written before the batch runs (step 1)
commits/<batch>   written when it is done (step 6)
"""

from __future__ import annotations

import json
from pathlib import Path

from headwater.errors import CheckpointLost
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Covered, Log, Progress, Snapshot

START = Snapshot(AppendNumber(0), Position())


def to_offset(snapshot: Snapshot) -> dict[str, object]:
    """As Spark keeps it: equal snapshots give equal JSON, for Spark compares texts."""
    return {"append": snapshot.number, "position": str(snapshot.position)}


def from_offset(offset: dict[str, object]) -> Snapshot:
    return Snapshot(AppendNumber(int(str(offset["append"]))), Position.parse(str(offset["position"])))


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def progress(self, batch: int) -> Progress:
        """The inputs of a batch that Spark has planned: after the batch before it, up to its own end."""
        start = self._end(batch - 1) if batch > 0 else START
        return Progress(start.position, self._end(batch).position)

    def last_planned(self) -> int | None:
        return self._last("offsets")

    def last_done(self) -> int | None:
        return self._last("commits")

    def _last(self, kind: str) -> int | None:
        folder = self.folder / kind
        batches = [int(file.name) for file in folder.iterdir() if file.name.isdigit()] if folder.is_dir() else []
        return max(batches, default=None)

    def _end(self, batch: int) -> Snapshot:
        path = self.folder / "offsets" / str(batch)
        try:
            return from_offset(json.loads(path.read_text().splitlines()[2]))
        except (OSError, IndexError, ValueError, KeyError) as error:
            raise CheckpointLost(pipeline=self.folder.parent.name, why=f"{path} cannot be read: {error}") from error

    def verify(self, log: Log, producer: str) -> None:
        """Before a run: what the checkpoint plans next must go on where the log's last append of this producer ended.

        Spark does not sync its checkpoint to disk, so after a power cut, a deletion or a restore it may lag behind; and
        a restored log may lag behind it: then it plans what the log cannot give, or believes done what is not there.
        """
        done: Covered | None = log.covered(producer)
        planned = self.last_planned()

        def lost(why: str) -> CheckpointLost:
            return CheckpointLost(pipeline=producer, why=why)

        if done is None:
            if planned not in (None, 0):
                raise lost(f"it has batch {planned}, the log has none")
        elif planned is None:
            raise lost(f"it is gone, the log has batch {done.sequence}")
        elif planned == done.sequence:
            if self.progress(planned) != done.progress:
                raise lost(f"batch {planned} is for other inputs than the one in the log")
        elif planned == done.sequence + 1:
            if self.progress(planned).start != done.progress.end:
                raise lost(f"batch {planned} does not begin where the log's last batch ended")
        else:
            raise lost(f"it stands at batch {planned}, the log at {done.sequence}")
        finished = self.last_done()
        if finished is not None and (done is None or finished > done.sequence):
            raise lost(f"it says that batch {finished} is done, which the log does not have")
        if planned is not None:
            end = self.progress(planned).end
            known = {spec.name for spec in log.topics()}
            there = log.snapshot([name for name in end.topics if name in known]).position
            if not there.covers(end):
                raise lost(f"batch {planned} reads up to {end}, the log ends at {str(there) or 'nothing'}")
