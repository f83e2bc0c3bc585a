"""Whoever adds up what a feed tells has the view's rows, at every step, whatever happens to the view."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import BadCursor, BadPosition
from headwater.log import Position
from headwater.log.position import AppendNumber
from headwater.serve.feed import Changes, Cursor, Feed, Gap, OtherColumns
from tests.unit.handmade import SCHEMA, HandMade, Versions, clicks


class Follower:
    """Adds up what it is told."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.cursor = Cursor(0, AppendNumber(0), Position())
        self.rows: Counter[tuple[str, int]] = Counter()
        self.start()

    def start(self) -> None:
        self.rows.clear()
        self._take(self._feed.start())

    def poll(self, max_rows: int = 1000) -> Changes | OtherColumns | Gap | None:
        told = self._feed.since(Cursor.parse(str(self.cursor)), max_rows=max_rows)
        if isinstance(told, Changes):
            self._take(told)
        return told

    def _take(self, told: Changes) -> None:
        for row in told.rows.to_pylist():
            self.rows[(row["page"], row["n"])] += row["_weight"]
        assert all(times in (0, 1) for times in self.rows.values()), "nothing is told twice or taken away twice"
        self.cursor = told.cursor

    @property
    def shown(self) -> dict[str, int]:
        return dict(row for row, times in self.rows.items() if times)


@pytest.fixture
def view(log: hw.Log) -> HandMade:
    return HandMade(log)


@pytest.fixture
def versions(view: HandMade) -> Versions:
    return Versions(view)


@pytest.fixture
def feed(log: hw.Log, versions: Versions) -> Feed:
    return Feed(log, versions, "by_page", SCHEMA)


def test_a_follower_has_the_rows_at_every_step(view: HandMade, feed: Feed) -> None:
    chance = random.Random(3)
    follower = Follower(feed)
    at = 0
    for _ in range(60):
        for _ in range(chance.randrange(3)):
            at += 1
            some = chance.sample("abcdef", chance.randrange(4))
            view.batch(clicks(at), **{page: chance.randrange(4) for page in some})
        told = follower.poll(max_rows=chance.choice([1, 4, 1000]))
        while isinstance(told, Changes):
            told = follower.poll()
        assert told is None
        assert follower.shown == view.rows


def test_reading_on_without_a_change_is_told_with_what_is_covered(view: HandMade, feed: Feed) -> None:
    view.batch(clicks(1), a=1)
    follower = Follower(feed)
    view.batch(clicks(7))
    told = follower.poll()
    assert isinstance(told, Changes)
    assert (told.rows.num_rows, told.at) == (0, clicks(7))
    assert follower.poll() is None


def test_what_came_and_went_between_two_polls_is_not_told(view: HandMade, feed: Feed) -> None:
    follower = Follower(feed)
    view.batch(clicks(1), a=1, b=1)
    view.batch(clicks(2), a=2, b=0)
    told = follower.poll()
    assert isinstance(told, Changes)
    assert told.rows.to_pylist() == [{"page": "a", "n": 2, "_weight": 1}]
    view.batch(clicks(3), a=3)
    told = follower.poll()
    assert isinstance(told, Changes)
    assert [row["_weight"] for row in told.rows.to_pylist()] == [-1, 1], "the old row goes before the new one comes"


def test_a_view_that_was_never_built_is_empty_and_then_begins(log: hw.Log) -> None:
    versions = Versions()
    follower = Follower(Feed(log, versions, "by_page", SCHEMA))
    assert str(follower.cursor) == "0.0"
    assert follower.poll() is None
    view = HandMade(log)
    versions.add(view)
    view.batch(clicks(1), a=1)
    follower.poll()
    assert follower.shown == {"a": 1}


def test_a_switch_is_told_as_the_difference_once_and_goes_on(
    log: hw.Log, view: HandMade, versions: Versions, feed: Feed
) -> None:
    view.batch(clicks(5), same=1, other=2, gone=3)
    follower = Follower(feed)
    newer = HandMade(log, version=2)
    newer.batch(clicks(4), same=1)
    versions.add(newer)
    versions.switch("by_page", 2)
    assert follower.poll() is None, "the new version does not cover yet what was told"
    view.batch(clicks(6), gone=4)
    follower.poll()
    assert (follower.shown, follower.cursor.version) == (view.rows, 1)
    newer.batch(clicks(6), other=7)
    told = follower.poll()
    assert isinstance(told, Changes)
    assert sorted((row["page"], row["_weight"]) for row in told.rows.to_pylist()) == [
        ("gone", -1),
        ("other", -1),
        ("other", 1),
    ]
    assert (follower.shown, follower.cursor.version) == (newer.rows, 2)
    view.batch(clicks(9), same=9)  # a run that does not know yet
    assert follower.poll() is None
    newer.batch(clicks(9), same=2)
    follower.poll()
    assert follower.shown == newer.rows


def test_switching_forth_and_back_leaves_nothing_out(
    log: hw.Log, view: HandMade, versions: Versions, feed: Feed
) -> None:
    chance, newer = random.Random(5), HandMade(log, version=2)
    versions.add(newer)
    view.batch(clicks(1), a=1)
    newer.batch(clicks(1), a=10)
    follower = Follower(feed)
    for at in range(2, 40):
        for each, factor in ((view, 1), (newer, 10)):
            each.batch(clicks(at), **{chance.choice("abc"): factor * chance.randrange(3)})
        if chance.random() < 0.3:
            versions.switch("by_page", chance.choice([1, 2]))
        while follower.poll() is not None:
            pass
        current = versions.current("by_page")
        assert current is not None
        assert follower.cursor.version == current.version
        assert follower.shown == (view if current.version == 1 else newer).rows


def test_what_was_compacted_is_a_gap_and_a_new_start_goes_on(log: hw.Log, view: HandMade, feed: Feed) -> None:
    view.batch(clicks(1), a=1, b=1, c=1, d=1)
    follower = Follower(feed)
    view.batch(clicks(2), a=2, b=2, c=2, d=2)
    view.batch(clicks(3), a=3, b=3, c=3, d=3)
    log.upkeep.compact("by_page")  # type: ignore[attr-defined]
    told = follower.poll()
    assert isinstance(told, Gap)
    assert told.why == "single changes from then on are gone: they were compacted"
    follower.start()
    assert follower.shown == view.rows
    assert follower.poll() is None


def test_a_version_with_other_columns_is_told_in_full_once_it_covers_what_was_told_and_goes_on(
    log: hw.Log, view: HandMade, versions: Versions, feed: Feed
) -> None:
    view.batch(clicks(2), a=1, b=1)
    follower = Follower(feed)
    wider = HandMade(log, version=2, schema=SCHEMA.append(pa.field("more", pa.int64())))
    wider.batch(clicks(1), a=1)
    versions.add(wider)
    versions.switch("by_page", 2)
    assert follower.poll() is None, "the new version does not cover yet what was told"
    wider.batch(clicks(2), b=5)
    told = follower.poll()
    assert isinstance(told, OtherColumns)
    assert (told.version, told.columns, told.state.at) == (2, wider.spec.schema, clicks(2))
    assert sorted(row.items() for row in told.state.rows.to_pylist()) == sorted(
        {"page": page, "n": n, "more": None, "_weight": 1}.items() for page, n in (("a", 1), ("b", 5))
    )
    wider.batch(clicks(3), a=7)
    later = feed.since(told.state.cursor)
    assert isinstance(later, Changes)
    assert [(row["page"], row["n"], row["_weight"]) for row in later.rows.to_pylist()] == [("a", 1, -1), ("a", 7, 1)]


def test_what_a_dropped_version_said_is_a_gap(log: hw.Log, view: HandMade, versions: Versions, feed: Feed) -> None:
    view.batch(clicks(1), a=1)
    follower = Follower(feed)
    newer = HandMade(log, version=2)
    newer.batch(clicks(1), a=1)
    versions.add(newer)
    versions.switch("by_page", 2)
    versions.drop("by_page", 1)
    assert follower.poll() == Gap(follower.cursor, "version 1 of the view was dropped")


def test_what_the_old_version_said_can_be_gone(log: hw.Log, view: HandMade, versions: Versions, feed: Feed) -> None:
    view.batch(clicks(1), a=1, b=1, c=1, d=1)
    follower = Follower(feed)
    view.batch(clicks(2), a=2, b=2, c=2, d=2)
    newer = HandMade(log, version=2)
    newer.batch(clicks(2), a=5)
    versions.add(newer)
    versions.switch("by_page", 2)
    log.upkeep.compact("by_page")  # type: ignore[attr-defined]
    assert follower.poll() == Gap(follower.cursor, "what version 1 said then is gone: it was compacted")


def test_a_log_that_ends_before_the_cursor_is_a_gap(tmp_path: Path, view: HandMade, feed: Feed) -> None:
    view.batch(clicks(1), a=1)
    told = feed.since(Cursor(1, AppendNumber(99), Position()))
    assert isinstance(told, Gap)
    assert "restored to an earlier state" in told.why
    assert isinstance(feed.since(Cursor(1, AppendNumber(1), Position.of({"by_page": {0: 999}}))), Gap)


@pytest.mark.parametrize("text", ["", "7", "x.1", "1.1@", "-1.2", "1.2@by_page", "1.2@a:0=1;b:0=2", "1." + "9" * 40])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises((BadCursor, BadPosition), match="is not a"):
        Cursor.parse(text)


def test_a_cursor_of_another_view_is_refused(feed: Feed) -> None:
    with pytest.raises(BadCursor, match="it is not one of view 'by_page'"):
        feed.since(Cursor(1, AppendNumber(3), Position.of({"elsewhere": {0: 1}})))


def test_waiting_ends_when_something_came(view: HandMade, feed: Feed) -> None:
    view.batch(clicks(1), a=1)
    cursor = feed.start().cursor
    assert not feed.wait(cursor, 0.01)
    view.batch(clicks(2))
    assert feed.wait(cursor, 5)
