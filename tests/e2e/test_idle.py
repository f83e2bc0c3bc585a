"""What an app costs before its first batch, and while nothing comes in."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.lanes import Lanes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
START_CPU_S = 90
"""CPU, not time, which is the machine's: Java compiles, Python imports, for two pipelines."""
IDLE_CORES = 0.2
SPAN_S = 10.0


def test_an_app_starts_with_little_work_and_waits_with_hardly_any(lanes: Lanes, until: Callable[..., None]) -> None:
    lanes.more(1000)
    lanes.start()
    until(lanes.are_caught_up, within_s=240, what="the first batches")
    start = sum(lanes.cpu_s().values())
    print(f"both pipelines are through their first batch after {start:.0f} s of CPU")  # noqa: T201
    assert start < START_CPU_S

    batches = lanes.batches()
    found: list[float] = []

    def is_idle() -> bool:
        """Over some seconds: a measure, not a wait. Java goes on for a while with compiling what was used before."""
        before, begun = lanes.cpu_s(), time.monotonic()
        time.sleep(SPAN_S)
        used = sum(cpu_s - before.get(process, 0) for process, cpu_s in lanes.cpu_s().items())
        found.append(used / (time.monotonic() - begun))
        return found[-1] < IDLE_CORES

    until(is_idle, within_s=180, what=f"less than {IDLE_CORES} of a core in use")
    print(f"then, of a core: {[round(each, 3) for each in found]}")  # noqa: T201
    assert lanes.batches() == batches, "no batch is made of nothing"

    lanes.more(10)  # and it is awake
    until(lanes.are_caught_up, within_s=60, what="a batch")
    assert lanes.batches() > batches
