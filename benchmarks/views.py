"""Many views over one topic on a small machine: in one Spark query, and each in a query of its own.

A producer appends 1,000 records a second; a record is fresh when all views cover it. CPU is that of the app with all of
its processes, so it tells what a view costs also where batches only become larger. The first third of a run warms up.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headwater as hw
from for_pipeline.children import Child, Deadline, cpu_s_below, say
from for_pipeline.live import START_S, run_app, send, steadily
from for_pipeline.ours import make_app

VIEWS = (
    "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id",
    "SELECT page, count(*) AS n FROM clicks GROUP BY page",
    "SELECT page, sum(price) AS total FROM clicks GROUP BY page",
    "SELECT user_id, max(at) AS last FROM clicks GROUP BY user_id",
    "SELECT page, count(DISTINCT user_id) AS visitors FROM clicks GROUP BY page",
    "SELECT user_id % 100 AS shard, min(price) AS low, max(price) AS high FROM clicks GROUP BY user_id % 100",
    "SELECT user_id, page, count(*) AS n FROM clicks GROUP BY user_id, page",
    "SELECT window_start, count(*) AS n FROM TUMBLE(clicks, at, '10 seconds') GROUP BY window_start",
    "SELECT DISTINCT user_id FROM clicks WHERE price > 10",
    "SELECT user_id, page, at FROM clicks QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY at DESC) = 1",
    "SELECT page, avg(price) AS mean FROM clicks WHERE price > 1 GROUP BY page",
)


def declare(app: hw.App, count: int, alone: bool) -> None:
    if alone:
        from headwater.process.keyed.lane import KeyedLane

        KeyedLane.depth = property(lambda self: None)  # type: ignore[assignment,method-assign]
    for number, sql in enumerate(VIEWS[:count]):
        app.view(f"v{number}", sql=sql)


def measure(folder: Path, count: int, rate: int, seconds: float, *, alone: bool = False) -> dict[str, Any]:
    app = make_app(folder)
    running = Child(run_app, folder, declare, (count, alone))
    watching = threading.Event()
    seen: list[tuple[float, int]] = []
    """When which number of records was covered by all views."""
    try:
        send(app, 1)
        deadline = Deadline("the first batch of all views", START_S)
        while len(producers := _producers(app, count)) < count or _covered(app.log, producers) < 1:
            time.sleep(min(0.05, deadline.left()))

        def watch() -> None:
            while not watching.wait(0.02):
                seen.append((time.monotonic(), _covered(app.log, producers)))

        threading.Thread(target=watch, daemon=True).start()
        steadily(app, rate, seconds / 3)
        before, began = _cpu_s(running.pid), time.monotonic()
        sent = _sent(app, rate, seconds)
        used = _cpu_s(running.pid) - before
        took = time.monotonic() - began
        deadline = Deadline("the last records", 120)
        while _covered(app.log, producers) < sent[-1][1]:
            time.sleep(min(0.02, deadline.left()))
    finally:
        watching.set()
        running.tell("stop")
        running.end()
        app.close()
    lags = _lags(sent, seen)
    p50, p99 = np.percentile(lags, [50, 99])
    return {"views": count, "p50_s": round(float(p50), 3), "p99_s": round(float(p99), 3), "cpu": round(used / took, 3)}


def _sent(app: hw.App, rate: int, seconds: float) -> list[tuple[float, int]]:
    """When each append was asked for, and how many records there were after it."""
    sent, start = [], time.monotonic()
    each = rate // 50
    for number in range(round(seconds * 50)):
        time.sleep(max(0.0, start + number / 50 - time.monotonic()))
        asked = time.monotonic()
        send(app, each)
        sent.append((asked, app.log.snapshot(["clicks"]).position.total))
        if time.monotonic() - start > 2 * seconds:
            raise TimeoutError(f"appending {rate:,} records a second: less than half of that was managed")
    return sent


def _lags(sent: Sequence[tuple[float, int]], seen: Sequence[tuple[float, int]]) -> list[float]:
    """`seen` is looked at every 20 ms, which counts as lag."""
    lags, place = [], 0
    for asked, total in sent:
        while place < len(seen) and (seen[place][1] < total or seen[place][0] < asked):
            place += 1
        if place < len(seen):
            lags.append(seen[place][0] - asked)
    return lags


def _producers(app: hw.App, count: int) -> list[str]:
    names = {f"v{number}" for number in range(count)}
    return [
        f"{folder.parent.name}@{folder.name}"
        for folder in app.folder.glob("pipelines/*/*/")
        if folder.parent.name in names
    ]


def _covered(log: hw.Log, producers: Sequence[str]) -> int:
    done = [log.covered(producer) for producer in producers]
    return min(each.progress.end.total if each is not None else 0 for each in done)


def _cpu_s(pid: int) -> float:
    return sum(cpu_s_below(pid).values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rate", type=int, default=1_000)
    options.add_argument("--seconds", type=float, default=45)
    options.add_argument("--without-peer", action="store_true", help="leave out the run with a query for each view")
    given = options.parse_args()
    detail: dict[str, Any] = {"cores": os.cpu_count(), "rate": given.rate}
    runs = {"one": (1, False), "ten": (10, False), "eleven": (11, False), "ten_alone": (10, True)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (count, alone) in runs.items():
            if alone and given.without_peer:
                continue
            own = Path(folder) / name
            own.mkdir()
            detail[name] = measure(own, count, given.rate, given.seconds, alone=alone)
            say(f"{name}: {detail[name]}")
    ten, alone = detail["ten"], detail.get("ten_alone", {})
    detail["eleventh_costs"] = round(detail["eleven"]["cpu"] / ten["cpu"] - 1, 3)
    print(
        json.dumps(
            {
                "bench": "views",
                "unit": "s, p99 until ten views cover a record",
                "ours": ten["p99_s"],
                "peer": alone.get("p99_s"),
                "peer_name": "a Spark query for each of the ten views",
                "ratio": round(alone["p99_s"] / ten["p99_s"], 2) if alone else None,
                "detail": detail,
            }
        )
    )


if __name__ == "__main__":
    main()
