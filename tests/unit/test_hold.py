"""A hold and batches that run without Spark keep out of each other's way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from headwater.process.hold import batch_unless_held, held, holding


def test_who_holds_begins_when_the_batch_under_way_is_through(tmp_path: Path, until: Callable[..., None]) -> None:
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with holding(tmp_path):
            begun.set()
            ended.wait(30)

    holder = threading.Thread(target=hold)
    with batch_unless_held(tmp_path) as free:
        assert free
        holder.start()
        until(lambda: held(tmp_path), what="the wish to hold")
        assert not begun.is_set(), "the batch is not through"
    until(begun.is_set, what="the hold")
    with batch_unless_held(tmp_path) as free:
        assert not free
    ended.set()
    holder.join(30)
    with batch_unless_held(tmp_path) as free:
        assert free


def test_batches_of_several_queries_run_side_by_side(tmp_path: Path) -> None:
    with batch_unless_held(tmp_path) as one, batch_unless_held(tmp_path) as other:
        assert one
        assert other
