"""A running app, seen from outside: how long a record takes into the derived topic.

Three processes, as in use: one appends, one runs the app, one follows the derived topic. A record carries the time of
its append, by the clock that they share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from for_pipeline.children import Child, Deadline
from for_pipeline.ours import make_app
from for_pipeline.records import clicks
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Snapshot

LOADS_PER_S = 50
START_S = 300.0
DRAIN_S = 120.0
DERIVED = "derived"
LANES = FRAMES, KEYED = "frames", "keyed"


def declare(app: hw.App, lane: str) -> None:
    """One derived topic whose rows carry `at`, the time of the append."""
    if lane == FRAMES:
        # Parameters are topics, by their names.
        app.stream(DERIVED, {"user_id": "int64", "at": "timestamp"}, key="user_id")(_passed_on)
    else:
        # The time is part of the key, so that each record is a row: every row of state is new, none is found again.
        app.view(DERIVED, sql="SELECT user_id, at, count(*) AS n FROM clicks GROUP BY user_id, at")


def _passed_on(clicks: Any) -> Any:
    return clicks.where("price > 0").select("user_id", "at")


def run_app(folder: Path, prepare: Callable[..., None], arguments: tuple[object, ...], pipe: Connection) -> None:
    """Runs until told to stop."""
    app = make_app(folder)
    prepare(app, *arguments)

    def wait() -> None:
        pipe.poll(None)
        app.stop()

    threading.Thread(target=wait, daemon=True).start()
    app.run()
    app.close()


def latency(folder: Path, lane: str, rate: int, seconds: float) -> dict[str, float]:
    """From before the append to the row in the hand of a follower of the derived topic."""
    app = make_app(folder)
    running = Child(run_app, folder, declare, (lane,))
    try:
        send(app, 1)
        following = Child(follow, folder)
        assert following.hear(START_S) == "ready"
        counted_from = time.time() + seconds / 3  # the first third of the time warms up
        sent = steadily(app, rate, seconds * 4 / 3)
        following.tell("all")
        took = following.answer(DRAIN_S + 60)
    finally:
        running.tell("stop")
        running.end()
        app.close()
    sent_at, arrived_at = took[0], took[1]
    assert len(sent_at) == sent + 1, f"{len(sent_at):,} of {sent + 1:,} records came through"
    counted = sent_at >= counted_from
    p50, p99 = np.percentile((arrived_at - sent_at)[counted], [50, 99])
    return {"p50_s": round(float(p50), 3), "p99_s": round(float(p99), 3), "records": int(counted.sum())}


def send(app: hw.App, count: int) -> None:
    chance = np.random.default_rng(count)
    load = clicks(np.arange(count), chance)
    now = pa.array(np.full(count, time.time_ns() // 1000)).cast(pa.timestamp("us", "UTC"))
    app.topics["clicks"].append(load.set_column(load.schema.get_field_index("at"), "at", now))


def steadily(app: hw.App, rate: int, seconds: float) -> int:
    """Appends at an even pace; how many records in all."""
    start, sent = time.monotonic(), 0
    each = rate // LOADS_PER_S
    for number in range(round(seconds * LOADS_PER_S)):
        time.sleep(max(0.0, start + number / LOADS_PER_S - time.monotonic()))
        send(app, each)
        sent += each
        if time.monotonic() - start > 2 * seconds:
            raise TimeoutError(f"appending {rate:,} records a second: less than half of that was managed")
    return sent


def follow(folder: Path, pipe: Connection) -> tuple[np.ndarray, np.ndarray]:
    """When each record was sent and when it arrived, in seconds of the common clock.

    Says "ready" with the first record. Told that all are sent, ends when it has read what the app has covered of them.
    """
    log = hw.open(f"file:{folder / 'log'}")
    sent: list[np.ndarray] = []
    arrived: list[np.ndarray] = []
    deadline, ending, quiet_since = Deadline("following", 4 * 3600), False, time.monotonic()
    for batch in _new_rows(log, DERIVED, deadline):
        now = time.time()
        if batch is not None:
            if not sent:
                pipe.send(("word", "ready"))
            sent.append(batch["at"].cast(pa.int64()).to_numpy() / 1e6)
            arrived.append(np.full(batch.num_rows, now))
            quiet_since = time.monotonic()
        if not ending and pipe.poll(0):
            pipe.recv()
            ending, deadline = True, Deadline("the last records", DRAIN_S)
        if ending and time.monotonic() - quiet_since > 5:
            break
        deadline.left()
    log.close()
    return np.concatenate(sent), np.concatenate(arrived)


def _new_rows(log: hw.Log, topic: str, deadline: Deadline) -> Iterator[pa.RecordBatch | None]:
    """Rows as they come, None after a while without any. A table's retractions are left out."""
    while topic not in {spec.name for spec in log.topics()}:
        time.sleep(min(0.05, deadline.left()))
    partitions = log.topic(topic).partitions
    seen = Snapshot(AppendNumber(0), Position())
    while True:
        log.wait(seen.number, 0.5)
        newest = log.snapshot([topic])
        for partition in range(partitions):
            start, end = (point.position.offset(topic, partition) for point in (seen, newest))
            for batch in log.scan(topic, partition, start, end) if start < end else ():
                kept = batch.filter(pc.greater(batch["_weight"], 0)) if "_weight" in batch.schema.names else batch
                yield kept
        yield None
        seen = newest


def await_rows(log: hw.Log, topic: str) -> None:
    deadline = Deadline(f"the first rows of {topic}", START_S)
    for batch in _new_rows(log, topic, deadline):
        if batch is not None:
            return
        deadline.left()
