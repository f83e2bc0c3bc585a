"""Keeps a store in step with its view's topic, in a thread of its own."""

from __future__ import annotations

import threading

import pyarrow as pa

from headwater.errors import HeadwaterError, StoreMoved
from headwater.log.protocol import Log, Snapshot
from headwater.serve.astray import begin
from headwater.serve.store import Mark, Target

WAKE_S = 0.25
MAX_ROWS = 500_000


class Follower:
    """Applies whole appends of `producer`, in order, with their progress. An error ends it and stays in `failure`."""

    def __init__(self, log: Log, topic: str, producer: str, store: Target) -> None:
        self._log = log
        self._topic = topic
        self._producer = producer
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {topic}", daemon=True)
        self.failure: HeadwaterError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def mark(self) -> Mark:
        return self._store.mark()

    def _run(self) -> None:
        try:
            mark = begin(self._log, self._topic, self._producer, self._store)
            seen = mark.number
            while not self._stop.is_set():
                seen = self._log.wait(seen, WAKE_S)
                try:
                    while not self._stop.is_set() and (further := self.step(mark)) is not None:
                        mark = further
                except StoreMoved:  # another process runs the same app, as long as both live
                    mark = self._store.mark()
        except HeadwaterError as error:
            self.failure = error

    def step(self, mark: Mark) -> Mark | None:
        """Apply what came after the mark, at most about `MAX_ROWS` of it; None if nothing came."""
        after = Snapshot(mark.number, mark.position)
        boundary = self._log.snapshot([self._topic], after=after, max_rows=MAX_ROWS)
        covered = self._log.covered(self._producer, at=boundary.number)
        if covered is None or covered.number <= mark.number:
            return None
        spec = self._log.topic(self._topic)
        batches = [
            batch
            for partition in range(spec.partitions)
            for batch in self._log.scan(
                self._topic,
                partition,
                mark.position.offset(self._topic, partition),
                boundary.position.offset(self._topic, partition),
            )
        ]
        further = Mark(covered.number, boundary.position, covered.progress.end)
        self._store.apply(pa.Table.from_batches(batches, spec.stored), further, after=mark)
        return further


def at_end(log: Log, topic: str, producer: str) -> Mark | None:
    """The mark of a store that holds everything there is; None if there is nothing."""
    boundary = log.snapshot([topic])
    covered = log.covered(producer, at=boundary.number)
    return Mark(covered.number, boundary.position, covered.progress.end) if covered is not None else None
