"""Pipelines end a batch at every cut that concerns them, views on views too, and are then told to stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.log.coverage import Made
from headwater.log.cuts import Cut, ask, recent, standing
from headwater.log.position import AppendNumber
from headwater.process import cuts
from headwater.records import schema_of
from tests.unit.handmade import HandMade, Planned, Versions, both


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Versions:
    """What is made by whom, in place of the registry."""
    known = Versions()
    monkeypatch.setattr(cuts, "_made_by", lambda job: known.made_by)
    return known


@pytest.fixture
def clicks(log: hw.Log) -> Topic:
    return Topic(log, log.create(TopicSpec("clicks", schema_of({"k": "int64"}), partitions=2)))


def stand(log: hw.Log, versions: Versions, made: Made, cut: Cut) -> AppendNumber | None:
    return standing(log, versions.made_by, made, cut.number).number


def test_a_batch_ends_at_the_cut_and_the_next_goes_on(
    log: hw.Log, clicks: Topic, versions: Versions, tmp_path: Path
) -> None:
    view = HandMade(log)
    versions.add(view)
    planned = Planned(log, tmp_path, view)
    there = clicks.append([{"k": 1}])
    cut = ask(log, [view.made.producer], timeout_s=30)
    clicks.append([{"k": 2}])
    end = clicks.end()
    assert stand(log, versions, view.made, cut) is None
    assert planned.step(count=1)
    assert log.covered(view.made.producer).progress.end == there  # type: ignore[union-attr]
    number = stand(log, versions, view.made, cut)
    assert number == log.snapshot([]).number
    assert planned.step(count=2)
    assert log.covered(view.made.producer).progress.end == end  # type: ignore[union-attr]
    assert stand(log, versions, view.made, cut) == number, "where it stood is still known when it has gone on"
    assert not planned.step()


def test_a_cut_that_concerns_others_or_that_nobody_waits_for_is_passed_by(
    log: hw.Log, clicks: Topic, versions: Versions, tmp_path: Path
) -> None:
    view = HandMade(log)
    planned = Planned(log, tmp_path, view)
    clicks.append([{"k": 1}])
    ask(log, ["somebody@else"], timeout_s=30)
    ask(log, [view.made.producer], timeout_s=-1)
    clicks.append([{"k": 2}])
    planned.step()
    assert not planned.step()


def test_who_has_read_all_stands_at_the_cut_at_once(
    log: hw.Log, clicks: Topic, versions: Versions, tmp_path: Path
) -> None:
    view = HandMade(log)
    versions.add(view)
    assert stand(log, versions, view.made, ask(log, [view.made.producer], timeout_s=30)) == 0
    clicks.append([{"k": 1}])
    Planned(log, tmp_path, view).step()
    assert stand(log, versions, view.made, ask(log, [view.made.producer], timeout_s=30)) is not None


def test_a_view_that_went_past_the_cut_is_told(log: hw.Log, clicks: Topic, versions: Versions) -> None:
    view = HandMade(log)
    versions.add(view)
    clicks.append([{"k": 1}])
    cut = ask(log, [view.made.producer], timeout_s=30)
    clicks.append([{"k": 2}])
    view.batch(clicks.end(), a=1)
    assert standing(log, versions.made_by, view.made, cut.number).passed


def test_a_view_on_a_view_and_on_its_input_comes_to_the_same_cut(
    log: hw.Log, clicks: Topic, versions: Versions, tmp_path: Path
) -> None:
    below, top = HandMade(log, "below"), HandMade(log, "top", inputs=("clicks", "below"))
    versions.add(below)
    versions.add(top)
    lower, upper = (Planned(log, tmp_path, each) for each in (below, top))
    there = clicks.append([{"k": 1}, {"k": 2}])
    cut = ask(log, [below.made.producer, top.made.producer], timeout_s=30)
    clicks.append([{"k": 3}])
    assert upper.step(count=1), "it may read what stands at the cut"
    assert not upper.step(), "and waits there for the view below"
    assert stand(log, versions, top.made, cut) is None
    assert lower.step(count=1)
    first = log.snapshot(["below"]).position
    assert lower.step(count=2)
    assert upper.step(count=3)
    assert log.covered(top.made.producer).progress.end == both(there, first)  # type: ignore[union-attr]
    assert stand(log, versions, top.made, cut) is not None
    while upper.step(count=4):
        pass
    assert log.covered(top.made.producer).progress.end == log.snapshot(["clicks", "below"]).position  # type: ignore[union-attr]


def test_limits_of_rows_do_not_lead_back(log: hw.Log, clicks: Topic, versions: Versions, tmp_path: Path) -> None:
    below, top = HandMade(log, "below"), HandMade(log, "top", inputs=("clicks", "below"))
    versions.add(below)
    versions.add(top)
    lower, upper = (Planned(log, tmp_path, each) for each in (below, top))
    for turn in range(6):
        clicks.append([{"k": turn}])
        cut = ask(log, [below.made.producer, top.made.producer], timeout_s=30)
        clicks.append([{"k": turn}])
        clicks.append([{"k": turn}])
        for _ in range(12):
            lower.step(most=1, count=turn + 1)
            upper.step(most=1, count=turn + 1)  # HandMade's append refuses a progress that goes back
        assert stand(log, versions, top.made, cut) is not None


def test_who_asks_soon_after_another_shares_the_next_cut(log: hw.Log) -> None:
    first = ask(log, ["a@1", "b@1"], timeout_s=30)
    assert [cut.number for cut in recent(log)] == [first.number]
    second = ask(log, ["a@1"], timeout_s=30)
    assert second.number > first.number, "it comes after all that was appended before the call"
    assert recent(log)[-1].producers == {"a@1"}
