"""How much memory a running app holds, over the minutes: what is its own, and apart from it pages of mapped files.

Mapped are libraries, chunks of the log and chunks of state; the kernel takes such pages back when it needs them.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import headwater as hw
from for_pipeline.children import Child, processes_below
from for_pipeline.live import DERIVED, await_rows, run_app
from for_pipeline.ours import COUNT, make_app
from for_pipeline.records import clicks

SAMPLE_S = 2.0
WARM_UP = 0.25
"""Of the time, not counted: the JVM's heap and the workers get to their sizes."""
Sizes = dict[tuple[str, str], float]
"""MB by kind of process (driver, jvm, workers) and of memory (own, mapped)."""


def memory_over(folder: Path, minutes: float) -> dict[str, Any]:
    """Of the app's processes, at 1,000 records a second of 100,000 users that are all there from the beginning."""
    app = make_app(folder)
    running = Child(run_app, folder, _counts, ())
    samples: list[tuple[float, Sizes]] = []
    over = threading.Event()
    chance = np.random.default_rng(3)

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            samples.append((time.monotonic(), sizes_below(running.pid)))

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        app.topics["clicks"].append(clicks(np.arange(100_000), chance))
        await_rows(app.log, DERIVED)
        start = time.monotonic()
        watcher.start()
        for number in range(round(minutes * 60 * 10)):
            time.sleep(max(0.0, start + number / 10 - time.monotonic()))
            app.topics["clicks"].append(clicks(chance.integers(0, 100_000, 100), chance))
            if time.monotonic() - start > 2 * 60 * minutes + 60:
                raise TimeoutError("appending 1,000 records a second: less than half of that was managed")
    finally:
        over.set()
        running.tell("stop")
        running.end()
        app.close()
    return summary(samples)


def _counts(app: hw.App) -> None:
    app.view(DERIVED, sql=COUNT)


def sizes_below(root: int) -> Sizes:
    """In the tree below and with `root`. Pages that forked workers share are counted in each."""
    found: Sizes = defaultdict(float)
    for pid in processes_below(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        told = dict(line.split(":", 1) for line in lines)
        kind = "driver" if pid == root else "jvm" if name == "java" else "workers"
        for what, fields in {"own": ["RssAnon"], "mapped": ["RssFile", "RssShmem"]}.items():
            found[kind, what] += sum(int(told.get(field, "0 kB").split()[0]) for field in fields) / 1024
    return dict(found)


def summary(samples: list[tuple[float, Sizes]]) -> dict[str, Any]:
    """After the warm-up: medians of the first and the last third, and the slope of a line through all samples."""
    counted = samples[int(len(samples) * WARM_UP) :]
    times = np.array([at for at, _ in counted])
    result: dict[str, Any] = {"minutes": round((times[-1] - times[0]) / 60, 1), "samples": len(counted)}
    for what in ("own", "mapped"):
        kinds = sorted({kind for _, sizes in counted for kind, of in sizes if of == what})
        series = {kind: np.array([sizes.get((kind, what), 0.0) for _, sizes in counted]) for kind in kinds}
        series["all"] = sum(series.values(), np.zeros(len(counted)))
        result[what] = {kind: _trend(times, sizes) for kind, sizes in series.items()}
    return result


def _trend(times: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    third = max(1, len(sizes) // 3)
    slope = float(np.polyfit(times, sizes, 1)[0]) if len(sizes) > 2 else 0.0
    return {
        "first_third_mb": round(statistics.median(sizes[:third])),
        "last_third_mb": round(statistics.median(sizes[-third:])),
        "slope_mb_per_hour": round(slope * 3600, 1),
    }
