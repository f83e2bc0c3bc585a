"""An app with both lanes and views that share a query, killed while records come in: all is what the log says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.lanes import Lanes

KILLS = int(os.environ.get("HEADWATER_APP_KILLS", "2"))
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300 + 120 * KILLS)]


def test_killed_at_random_moments_both_lanes_and_views_are_right(
    lanes_and_views: Lanes, until: Callable[..., None]
) -> None:
    lanes = lanes_and_views
    for number in range(KILLS):
        lanes.more(3000)
        known = lanes.derived()
        lanes.start(few=number % 2 == 0)
        until(lambda known=known: lanes.written() > known, within_s=240, what="a batch")
        lanes.more(3000)
        time.sleep(lanes.chance.uniform(0, 3))  # the random moment, not a wait for anything
        lanes.kill()
    lanes.more(1000)
    assert lanes.start("--caught-up").wait(timeout=280) == 0
    lanes.check()


def test_the_jvm_killed_alone_ends_the_run_with_a_word_and_the_next_one_goes_on(
    lanes: Lanes, until: Callable[..., None]
) -> None:
    lanes.more(3000)
    lanes.start()
    until(lambda: lanes.written() > 0, within_s=240, what="a batch")
    lanes.more(3000)
    os.kill(lanes.jvm(), signal.SIGKILL)
    assert lanes.process.wait(timeout=60) == 8
    said = lanes.words.read_text()
    assert "Spark's Java process was killed (signal 9)" in said
    assert "Traceback" not in said
    until(lambda: not lanes.processes(), what=f"the end of {lanes.processes()}")
    assert lanes.start("--caught-up").wait(timeout=280) == 0
    lanes.check()
