"""Reading views: one's own writes, through views on views, the past, several at one moment, and across versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import CutNotReached, NotAnInput, NotCovered, PastGone, UsageError
from headwater.log import Position, Topic, TopicSpec
from headwater.log.coverage import Made
from headwater.process import cuts
from headwater.records import schema_of
from headwater.serve.follower import Follower
from headwater.serve.freshness import freshness
from headwater.serve.snapshot import snapshot
from headwater.serve.sqlite import SqliteStore
from headwater.serve.view import Source, View, ViewSpec
from tests.unit.handmade import SCHEMA, HandMade, Planned, Versions


class House:
    """A log with the topic `clicks`, views by hand, their stores, and readers of them."""

    def __init__(self, log: hw.Log, folder: Path) -> None:
        self.log, self.folder = log, folder
        self.clicks = Topic(log, log.create(TopicSpec("clicks", schema_of({"k": "int64"}), partitions=2)))
        self.versions = Versions()

    def view(self, name: str, *, version: int = 1, inputs: tuple[str, ...] = ("clicks",)) -> HandMade:
        made = HandMade(self.log, name, version=version, inputs=inputs)
        self.versions.add(made)
        return made

    def store(self, made: Made) -> SqliteStore:
        return SqliteStore(self.folder / f"{made.producer}.db", SCHEMA, ("page",))

    def reader(self, name: str) -> View:
        """As another process has it."""
        made = self.versions.current(name)
        assert made is not None
        spec = ViewSpec(name, "SELECT ...", SCHEMA, ("page",), made.inputs)
        return View(spec, lambda: self.store(made), Source(self.log, self.versions, self.store))

    def serve(self, *views: HandMade) -> None:
        """Bring the stores up to date."""
        for view in views:
            store = self.store(view.made)
            follower = Follower(self.log, view.made.topic, view.made.producer, store)
            while follower.step(store.mark()) is not None:
                pass

    def click(self, count: int = 1) -> Position:
        return self.clicks.append([{"k": number} for number in range(count)])


@pytest.fixture
def house(log: hw.Log, tmp_path: Path) -> House:
    return House(log, tmp_path)


# --- one's own writes ---


def test_a_view_on_a_view_answers_for_a_write_once_both_have_it(house: House) -> None:
    below, above = house.view("below"), house.view("above", inputs=("below",))
    reader = house.reader("above")
    token = house.click()
    with pytest.raises(NotCovered, match="view 'above' covers nothing"):
        reader.get("a", after=token, timeout_s=0)
    end = below.batch(house.clicks.end(), a=1)
    house.serve(below)
    assert not reader.covers(token)
    above.batch(end, a=1)
    assert not reader.covers(token), "its store has not applied it yet"
    house.serve(above)
    assert reader.get("a", after=token, timeout_s=0) == {"page": "a", "n": 1}
    assert reader.position.covers(house.clicks.end())
    assert reader.position.covers(end), "and what it reads directly"


def test_a_write_that_changes_nothing_is_covered_all_the_same(house: House) -> None:
    below, above = house.view("below"), house.view("above", inputs=("below",))
    house.click()
    above.batch(below.batch(house.clicks.end(), a=1), a=1)
    house.serve(below, above)
    token = house.click()
    below.batch(house.clicks.end())
    assert house.reader("above").covers(token), "no batch of it will ever tell: nothing came of the write below"


def test_a_token_of_other_topics_is_ignored_if_the_view_reads_some_of_it(house: House) -> None:
    below, above = house.view("below"), house.view("above", inputs=("below",))
    token = house.click()
    above.batch(below.batch(house.clicks.end(), a=1), a=1)
    house.serve(below, above)
    reader = house.reader("above")
    elsewhere = Position.of({"elsewhere": {0: 99}})
    assert reader.covers(Position.of({**token.as_dict(), **elsewhere.as_dict()}))
    with pytest.raises(NotAnInput, match="reads none of elsewhere. Wait for a position of below, clicks"):
        reader.read(after=elsewhere)


# --- the past ---


def test_the_past_by_position_and_by_time(house: House) -> None:
    view, reader = house.view("by_page"), house.reader("by_page")
    tokens, times = [], []
    for n in range(1, 5):
        tokens.append(house.click())
        view.batch(house.clicks.end(), a=n, **{f"p{n}": 1})
        times.append(house.log.clock())  # type: ignore[attr-defined]
    house.serve(view)
    for n, (token, time_us) in enumerate(zip(tokens, times, strict=True), 1):
        then = datetime.fromtimestamp(time_us / 1_000_000, UTC)
        for as_of in (token, then):
            told = reader.read(as_of=as_of, order_by="page")
            assert told.to_pylist() == [{"page": "a", "n": n}, *({"page": f"p{i}", "n": 1} for i in range(1, n + 1))]
        assert reader.read(as_of=then, where={"n": n}, columns=["page"], limit=1).num_rows == 1
    assert reader.read(as_of=datetime(2020, 1, 1, tzinfo=UTC)).num_rows == 0
    assert reader.read(as_of=datetime.now(UTC) + timedelta(days=1)).num_rows == 5


def test_what_the_view_does_not_cover_yet_is_not_its_past(house: House) -> None:
    view, reader = house.view("by_page"), house.reader("by_page")
    view.batch(Position(), a=1)
    token = house.click()
    with pytest.raises(NotCovered, match="not yet clicks"):
        reader.read(as_of=token)
    with pytest.raises(NotAnInput):
        reader.read(as_of=Position.of({"elsewhere": {0: 1}}))
    with pytest.raises(UsageError, match="after and as_of contradict each other"):
        reader.read(as_of=token, after=token)


def test_a_past_that_was_compacted_is_refused(house: House) -> None:
    view, reader = house.view("by_page"), house.reader("by_page")
    tokens = []
    for n in range(1, 4):
        tokens.append(house.click())
        view.batch(house.clicks.end(), a=n, b=n, c=n, d=n)
    house.serve(view)
    house.log.upkeep.compact("by_page")  # type: ignore[attr-defined]
    with pytest.raises(PastGone, match="how view 'by_page' was at clicks.* is not known any more"):
        reader.read(as_of=tokens[0])
    assert reader.read(as_of=tokens[2]).num_rows == 4
    assert reader.read(as_of=datetime(2020, 1, 1, tzinfo=UTC)).num_rows == 0, "before the first, it had none"


def test_freshness_is_how_long_the_oldest_unread_record_waits(tmp_path: Path) -> None:
    now = 1_000_000_000
    log = hw.open(f"file:{tmp_path / 'log'}", clock=lambda: now)
    clicks = Topic(log, log.create(TopicSpec("clicks", schema_of({"k": "int64"}), partitions=2)))
    assert freshness(log, ["clicks"], Position(), clock=lambda: now).behind_s == 0
    first = clicks.append([{"k": 1}])
    now += 3_000_000
    clicks.append([{"k": 2}, {"k": 3}])
    now += 4_000_000
    told = freshness(log, ["clicks"], Position(), clock=lambda: now)
    assert (told.behind_s, told.waiting) == (7.0, 3)
    told = freshness(log, ["clicks"], first, clock=lambda: now)
    assert (told.behind_s, told.waiting) == (4.0, 2)
    assert told.as_of == datetime.fromtimestamp(1003, UTC)
    assert freshness(log, ["clicks"], clicks.end(), clock=lambda: now).behind_s == 0
    log.close()


def test_a_view_says_how_fresh_it_is_by_the_topics_at_its_root(house: House) -> None:
    below, above = house.view("below"), house.view("above", inputs=("below",))
    house.click(3)
    end = below.batch(house.clicks.end(), a=1)
    reader = house.reader("above")
    assert reader.freshness.waiting == 3
    above.batch(end, a=1)
    house.serve(above)
    assert (reader.freshness.waiting, reader.freshness.behind_s) == (0, 0.0)


# --- versions ---


def test_a_reader_moves_to_the_new_version_once_that_covers_what_it_answered(house: House) -> None:
    old = house.view("by_page")
    first = house.click()
    old.batch(house.clicks.end(), a=1)
    house.serve(old)
    reader = house.reader("by_page")
    assert reader.get("a") == {"page": "a", "n": 1}
    new = house.view("by_page", version=2)
    house.versions.switch("by_page", 2)
    assert reader.get("a", after=first) == {"page": "a", "n": 1}, "the new one has nothing yet"
    second = house.click()
    new.batch(house.clicks.end(), a=20)
    house.serve(new)
    assert reader.get("a", after=second, timeout_s=1) == {"page": "a", "n": 20}, "tokens mean the same"
    assert reader.get("a", after=first) == {"page": "a", "n": 20}
    house.versions.switch("by_page", 1)
    assert reader.get("a") == {"page": "a", "n": 20}, "the old one is behind"
    old.batch(house.clicks.end(), a=2)
    house.serve(old)
    assert reader.get("a") == {"page": "a", "n": 2}


def test_a_version_that_was_dropped_is_left_at_once(house: House) -> None:
    old = house.view("by_page")
    house.click()
    old.batch(house.clicks.end(), a=1)
    house.serve(old)
    reader = house.reader("by_page")
    assert reader.read().num_rows == 1
    house.view("by_page", version=2)
    house.versions.switch("by_page", 2)
    house.versions.drop("by_page", 1)
    assert reader.read().num_rows == 0


# --- one moment ---


@pytest.fixture
def running(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Views that count clicks, each by a pipeline in a thread of its own, while clicks come in."""
    monkeypatch.setattr(cuts, "_made_by", lambda job: house.versions.made_by)
    ended = threading.Event()
    threads = []

    def start(*views: HandMade) -> None:
        def work(planned: Planned) -> None:
            while not ended.is_set():
                planned.step(most=7)

        def click() -> None:
            while not ended.is_set():
                house.click(2)

        house.click()
        threads.append(threading.Thread(target=click))
        threads.extend(threading.Thread(target=work, args=(Planned(house.log, house.folder, view),)) for view in views)
        for thread in threads:
            thread.start()

    yield start
    ended.set()
    for thread in threads:
        thread.join()


def test_views_at_one_moment_are_never_a_mixture(house: House, running: Callable[..., None]) -> None:
    one, two = house.view("one"), house.view("two")
    running(one, two)
    readers = [house.reader(name) for name in ("one", "two")]
    seen = set()
    for _ in range(5):
        before = house.clicks.end().total
        told = snapshot(house.log, house.versions, readers, timeout_s=30)
        counts = [told[name].to_pylist() for name in ("one", "two")]
        assert counts[0] == counts[1] == [{"page": "a", "n": told.position.total}]
        assert told.position.total >= before, "what was there at the call is in it"
        seen.add(told.number)
    assert len(seen) == 5


def test_a_view_and_the_view_on_it_at_one_moment(house: House, running: Callable[..., None]) -> None:
    below, above = house.view("below"), house.view("above", inputs=("below",))
    running(below, above)
    readers = [house.reader(name) for name in ("below", "above")]
    for _ in range(4):
        told = snapshot(house.log, house.versions, readers, timeout_s=30)
        clicks = told.position.only(["clicks"]).total
        assert told["below"].to_pylist() == [{"page": "a", "n": clicks}]
        read = told.position.only(["below"]).total
        assert told["above"].to_pylist() == [{"page": "a", "n": read}], "it counts the changes of the other one"


def test_a_snapshot_that_nobody_works_for_is_refused_in_time(house: House) -> None:
    view = house.view("by_page")
    house.click()
    with pytest.raises(CutNotReached, match="views by_page did not all come to one and the same cut"):
        snapshot(house.log, house.versions, [house.reader("by_page")], timeout_s=0.2)
    view.batch(house.clicks.end(), a=1)
    told = snapshot(house.log, house.versions, [house.reader("by_page")], timeout_s=5)
    assert told["by_page"].num_rows == 1, "nobody has to work where all is done"
