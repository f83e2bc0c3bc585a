"""A store in step with its topic: whole appends, empty ones too, and again after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import NotAnInput, NotCovered
from headwater.log import Position, Progress, TopicSpec
from headwater.log.topic import split
from headwater.serve import follower
from headwater.serve.follower import Follower
from headwater.serve.stores.sqlite import SqliteStore
from headwater.serve.view import View, ViewSpec

SCHEMA = pa.schema([("page", pa.string()), ("n", pa.int64())])
SPEC = TopicSpec("by_page", SCHEMA, key=("page",), kind="table")


class Pipeline:
    """Writes the view's topic as a pipeline does: weighted rows with progress."""

    def __init__(self, log: hw.Log) -> None:
        self.log = log
        log.create(SPEC)
        self.producer = log.begin("by_page@1")
        self.sequence = 0
        self.end = Position()
        self.rows: dict[str, int] = {}

    def batch(self, **counts: int) -> Position:
        rows = []
        for page, n in counts.items():
            if page in self.rows:
                rows.append({"page": page, "n": self.rows[page], "_weight": -1})
            self.rows[page] = n
            rows.append({"page": page, "n": n, "_weight": 1})
        batch = pa.RecordBatch.from_pylist(rows, SPEC.stored)
        parts = [self.log.stage("by_page", p, part) for p, part in split(batch, ("page",), 4).items()]
        start, self.end = self.end, Position.of({"clicks": {0: self.end.offset("clicks", 0) + 10}})
        self.log.append(parts, producer=self.producer, sequence=self.sequence, progress=Progress(start, self.end))
        self.sequence += 1
        return self.end


@pytest.fixture
def pipeline(log: hw.Log) -> Pipeline:
    return Pipeline(log)


@pytest.fixture
def view(tmp_path: Path) -> View:
    spec = ViewSpec("by_page", "SELECT ...", SCHEMA, ("page",), ("clicks",))
    return View(spec, lambda: SqliteStore(tmp_path / "v.db", SCHEMA, ("page",)))


def follow(log: hw.Log, view: View) -> Follower:
    return Follower(log, "by_page", "by_page@1", view.store)


def test_the_store_takes_up_what_was_there_and_what_comes(log: hw.Log, pipeline: Pipeline, view: View) -> None:
    pipeline.batch(a=1, b=1)
    following = follow(log, view)
    following.start()
    try:
        end = pipeline.batch(a=2, c=7)
        view.wait(end)
        assert {row["page"]: row["n"] for row in view.read().to_pylist()} == {"a": 2, "b": 1, "c": 7}
        assert view.get("c", after=end) == {"page": "c", "n": 7}
        view.wait(pipeline.batch())  # a batch without output covers its inputs too
    finally:
        following.stop()
    assert following.failure is None


def test_a_follower_that_begins_again_goes_on_at_its_mark(log: hw.Log, pipeline: Pipeline, view: View) -> None:
    pipeline.batch(a=1)
    mark = follow(log, view).step(view.store.mark())
    pipeline.batch(a=2)
    assert mark == view.store.mark()
    again = follow(log, view)
    again.step(view.store.mark())
    assert again.step(view.store.mark()) is None
    assert view.read().to_pylist() == [{"page": "a", "n": 2}]


def test_much_is_applied_in_pieces_that_end_on_appends(
    log: hw.Log, pipeline: Pipeline, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "MAX_ROWS", 3)
    for n in range(5):
        pipeline.batch(a=n, b=n)
    following, seen = follow(log, view), []
    while following.step(view.store.mark()) is not None:
        rows = {row["page"]: row["n"] for row in view.read().to_pylist()}
        seen.append(rows)
        assert rows["a"] == rows["b"], "an append is applied whole"
    assert len(seen) > 2
    assert seen[-1] == {"a": 4, "b": 4}


def test_waiting_for_what_does_not_come_says_what_is_covered(log: hw.Log, pipeline: Pipeline, view: View) -> None:
    follow(log, view)
    asked = Position.of({"clicks": {0: 99}})
    with pytest.raises(NotCovered, match="view 'by_page' covers nothing, not yet clicks:0=99"):
        view.get("a", after=asked, timeout_s=0.01)


def test_a_position_of_other_topics_counts_only_where_the_view_reads_it(view: View) -> None:
    both = Position.of({"elsewhere": {0: 5}})
    with pytest.raises(NotAnInput, match="reads none of elsewhere. Wait for a position of clicks"):
        view.wait(both, timeout_s=0)
    assert not view.covers(Position.of({"elsewhere": {0: 5}, "clicks": {0: 1}}))


def test_a_store_that_breaks_stops_its_follower_with_the_reason(
    log: hw.Log, pipeline: Pipeline, view: View, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(changes: object, mark: object, *, after: object) -> None:
        raise hw.errors.StorageFailed(act="using", file="v.db", why="disk full")

    monkeypatch.setattr(view.store, "apply", broken)
    following = follow(log, view)
    following.start()
    pipeline.batch(a=1)
    until(lambda: following.failure is not None, what="the failure")
    assert "disk full" in str(following.failure)
    following.stop()


def test_two_processes_that_follow_into_one_store_apply_every_append_once(
    log: hw.Log, pipeline: Pipeline, view: View, tmp_path: Path
) -> None:
    other = SqliteStore(tmp_path / "v.db", SCHEMA, ("page",))
    followers = [follow(log, view), Follower(log, "by_page", "by_page@1", other)]
    for each in followers:
        each.start()
    try:
        for n in range(30):
            end = pipeline.batch(a=n, b=2 * n)
        view.wait(end)
    finally:
        for each in followers:
            each.stop()
    assert [each.failure for each in followers] == [None, None]
    assert {row["page"]: row["n"] for row in view.read().to_pylist()} == {"a": 29, "b": 58}
    other.close()
