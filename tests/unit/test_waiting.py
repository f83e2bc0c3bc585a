"""Who waits hears soon after an append; who waits on an idle log looks seldom; of many threads one looks for all."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import waiting
from headwater.log.embedded.bell import Bell, Ear
from headwater.log.embedded.waiting import LEAST_S, MOST_S, Watch
from headwater.log.position import AppendNumber
from headwater.records import schema_of


class Clock:
    """A log on which appends come when they are due, and time passes only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.due: list[float] = []
        self.slept: list[float] = []
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        self.watch = Watch(self.newest, self.newest)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds

    def newest(self) -> int:
        return sum(at <= self.now for at in self.due)

    def after(self, seconds: float) -> float:
        self.due.append(self.now + seconds)
        return self.due[-1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("gap_s", [0.001, 0.005, 0.01, 0.03, 1.0])
def test_an_append_is_heard_of_within_a_fraction_of_the_time_since_the_last_one(clock: Clock, gap_s: float) -> None:
    for number in range(20):
        at = clock.after(gap_s)
        assert clock.watch.wait(number, 10) == number + 1
        assert clock.now - at <= min(MOST_S, max(LEAST_S, gap_s / 10)) + 1e-6


def test_an_idle_log_is_looked_at_no_more_often_however_often_one_asks(clock: Clock) -> None:
    clock.after(0)
    for _ in range(20):
        assert clock.watch.wait(1, 0.1) == 1
    clock.slept.clear()
    for _ in range(10):
        assert clock.watch.wait(1, 0.1) == 1
    assert sum(clock.slept) == pytest.approx(1.0)
    assert len(clock.slept) <= 10 * 21


def test_the_time_that_is_given_is_kept(clock: Clock) -> None:
    began = clock.now
    assert clock.watch.wait(0, 0.0123) == 0
    assert clock.now - began == pytest.approx(0.0123)
    assert clock.watch.wait(0, 0) == 0
    assert clock.now - began == pytest.approx(0.0123)


class Appends:
    """Seen from threads."""

    def __init__(self) -> None:
        self.number = 0

    def version(self) -> int:
        return self.number

    def newest(self) -> int:
        return self.number


def waiting_for(watch: Watch, after: int, timeout_s: float, heard: list[int]) -> threading.Thread:
    thread = threading.Thread(target=lambda: heard.append(watch.wait(after, timeout_s)))
    thread.start()
    return thread


def test_one_thread_looks_and_all_hear(until: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    appends = Appends()
    watch = Watch(appends.version, appends.newest)
    sleepers: set[int] = set()
    real = waiting.time

    def sleep(seconds: float) -> None:
        sleepers.add(threading.get_ident())
        real.sleep(seconds)

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=real.monotonic, sleep=sleep))
    heard: list[int] = []
    threads = [waiting_for(watch, 0, 30, heard) for _ in range(8)]
    until(lambda: sleepers)
    appends.number = 3
    for thread in threads:
        thread.join()
    assert (heard, len(sleepers)) == ([3] * 8, 1)


def test_when_the_one_who_looks_gives_up_another_one_goes_on() -> None:
    appends = Appends()
    watch = Watch(appends.version, appends.newest)
    first: list[int] = []
    others: list[int] = []
    looker = waiting_for(watch, 0, 0.05, first)
    threads = [waiting_for(watch, 0, 30, others) for _ in range(4)]
    looker.join()
    assert first == [0]
    appends.number = 1
    for thread in threads:
        thread.join()
    assert others == [1] * 4


def test_one_who_fails_while_it_looks_leaves_the_others_waiting_for_news(until: Callable[..., None]) -> None:
    appends = Appends()
    failing: set[int] = set()
    looks: list[int] = []

    def version() -> int:
        looks.append(1)
        if threading.get_ident() in failing:
            raise OSError("gone")
        return appends.number

    watch = Watch(version, appends.newest)
    failed: list[OSError] = []

    def fail() -> None:
        try:
            watch.wait(0, 30)
        except OSError as error:
            failed.append(error)

    looker = threading.Thread(target=fail)
    looker.start()
    until(lambda: len(looks) > 2)  # it looks
    heard: list[int] = []
    other = waiting_for(watch, 0, 30, heard)
    assert looker.ident is not None
    failing.add(looker.ident)
    looker.join()
    appends.number = 1
    other.join()
    assert (len(failed), heard) == (1, [1])


@pytest.mark.skipif(sys.platform != "linux", reason="bells are heard by inotify")
def test_who_waits_hears_the_bell_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNRUNG_S", 60.0)
    log = hw.open(f"file:{tmp_path}")
    topic = Topic(log, log.create(TopicSpec("t", schema_of({"n": "int64"}))))
    seen = log.wait(AppendNumber(0), 0)
    heard: list[int] = []
    waits = threading.Thread(target=lambda: heard.append(log.wait(seen, 30)))
    waits.start()
    append = f"import headwater as hw; log = hw.open('file:{tmp_path}'); log.append_rows('t', [{{'n': 1}}])"
    subprocess.run([sys.executable, "-c", append], check=True)
    waits.join(20)
    assert heard == [seen + 1]
    topic.append([{"n": 2}])  # rung while nobody waits
    assert log.wait(AppendNumber(heard[0]), 0) == seen + 2
    assert log.wait(AppendNumber(seen + 2), 0.01) == seen + 2
    log.close()


def test_a_writer_that_was_killed_before_it_rang_is_heard_of_all_the_same() -> None:
    appends = Appends()
    quiet = SimpleNamespace(wait=lambda seconds: threading.Event().wait(min(seconds, 0.01)), close=lambda: None)
    watch = Watch(appends.version, appends.newest, listen=lambda: cast(Ear, quiet))
    heard: list[int] = []
    waits = waiting_for(watch, 0, 30, heard)
    appends.number = 1
    waits.join()
    assert heard == [1]


def test_what_was_rung_before_anybody_listened_is_heard_of() -> None:
    appends = Appends()

    def listen() -> Ear:
        appends.number = 1  # between the look before and the first that listens
        return cast(Ear, SimpleNamespace(wait=lambda seconds: pytest.fail("it is there already")))

    assert Watch(appends.version, appends.newest, listen=listen).wait(0, 30) == 1


def test_what_another_one_heard_just_before_one_begins_to_look_is_heard_of() -> None:
    appends = Appends()

    def newest() -> int:
        before = appends.number
        if not before:
            appends.number = 1
            watch._told(1)  # who looked until now hears it, and reads the ring
        return before

    ear = SimpleNamespace(wait=lambda seconds: pytest.fail("it was heard already"), close=lambda: None)
    watch = Watch(appends.version, newest)
    watch._listened, watch._ear = True, cast(Ear, ear)
    assert watch.wait(0, 30) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="bells are heard by inotify")
@pytest.mark.parametrize("how", ["closed", "closed while somebody waits", "dropped"])
def test_no_ear_stays_open(tmp_path: Path, how: str, until: Callable[..., None]) -> None:
    appends = Appends()
    listening = Bell(tmp_path / "bell")
    watch = Watch(appends.version, appends.newest, listen=listening.listen)
    heard: list[int] = []
    waits = waiting_for(watch, 0, 30 if how == "closed while somebody waits" else 0.01, heard)
    until(lambda: watch._ear is not None)
    ear = watch._ear
    assert ear is not None
    if how == "closed while somebody waits":
        watch.close()
        appends.number = 1
        waits.join()
    else:
        waits.join()
        watch.close() if how == "closed" else None
    number, close = ear._watching, ear._close
    if how == "dropped":
        del watch, ear
        gc.collect()
    assert not close.alive
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_without_a_bell_it_is_looked_at_often(clock: Clock) -> None:
    watch = Watch(clock.newest, clock.newest, listen=lambda: None)
    clock.after(0.01)
    assert watch.wait(0, 10) == 1
    assert clock.slept


def test_a_bell_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "no such folder" / "bell")
    bell.ring()
    assert bell.listen() is None
