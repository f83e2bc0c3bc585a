"""What an app says and does over several topics and views, without Spark: refusals, tokens, versions, history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import CutNotReached, NotAnInput, NotCovered, TopicNotFound, UsageError, ViewNotFound
from headwater.log import Settings
from headwater.process.lookup import VersionLookup
from headwater.process.versions import Versions
from tests.unit.handmade import HandMade, clicks
from tests.unit.test_versions import rebuilt
from tests.unit.test_versions import view as declared


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", log=f"file:{tmp_path / 'log'}") as made:
        made.topic("clicks", {"user_id": "int64", "page": "string"}, key="user_id")
        made.topic("notes", {"text": "string"})
        made.view("by_page", sql="SELECT page, count(*) AS n FROM clicks GROUP BY page")
        made.view("by_count", sql="SELECT n, count(*) AS pages FROM by_page GROUP BY n")
        yield made


CLICK = {"user_id": 1, "page": "/"}


def test_one_append_to_several_topics(app: hw.App) -> None:
    token = app.append({"clicks": [CLICK, CLICK], "notes": [{"text": "hi"}]})
    assert [app.topics[name].read().num_rows for name in ("clicks", "notes")] == [2, 1]
    assert app.log.snapshot(["clicks", "notes"]).number == 1
    assert app.topics["clicks"].end() == token.only(["clicks"])
    assert app.append("clicks", [CLICK]).topics == ("clicks",)


def test_what_cannot_be_waited_for_is_refused_before_anything_is_appended(app: hw.App) -> None:
    with pytest.raises(NotAnInput, match="view 'by_count' reads none of notes. Wait for a position of by_page, clicks"):
        app.append("notes", [{"text": "hi"}], wait_for=["by_count"])
    with pytest.raises(ViewNotFound):
        app.append("clicks", [CLICK], wait_for=["nope"])
    with pytest.raises(TopicNotFound):
        app.append({"nope": [CLICK], "clicks": [CLICK]})
    with pytest.raises(UsageError, match="append takes a topic and rows, or one dict"):
        app.append("clicks")
    assert app.log.snapshot([]).number == 0


def test_a_write_that_is_not_reflected_in_time_is_safe_all_the_same(app: hw.App) -> None:
    with pytest.raises(NotCovered, match="view 'by_page' covers nothing, not yet clicks"):
        app.append("clicks", [CLICK], wait_for=["by_page", "by_count"], timeout_s=0)
    assert app.topics["clicks"].read().num_rows == 1


def test_a_snapshot_of_what_never_ran_is_refused(app: hw.App) -> None:
    with pytest.raises(CutNotReached, match="missing: by_page, by_count"):
        app.snapshot(["by_page", "by_count"], timeout_s=0.1)
    with pytest.raises(ViewNotFound, match="there is no view 'nope'. Views here: by_page, by_count"):
        app.snapshot(["by_page", "nope"])


def test_a_lookup_follows_the_registry(log: hw.Log, tmp_path: Path) -> None:
    HandMade(log, "clicks")  # only its topic counts here
    versions, lookup = Versions(log, app="shop"), VersionLookup(log, tmp_path)
    assert lookup.current("by_page") is None
    versions.declare(declared())
    first = lookup.current("by_page")
    assert first is not None
    assert (first.version, first.topic, first.inputs) == (1, "by_page", ("clicks",))
    rebuilt(versions, declared(mark="bb"))
    assert lookup.current("by_page") == first
    versions.switch("by_page")
    second = lookup.current("by_page")
    assert second is not None
    assert (second.version, second.topic) == (2, "by_page.v2")
    assert lookup.made_by("by_page") == first == lookup.version("by_page", 1)
    versions.drop("by_page", 1)
    assert lookup.version("by_page", 1) is None


def test_compaction_leaves_what_is_younger_than_a_topics_history(tmp_path: Path) -> None:
    now = 1_000_000_000
    log = hw.open(f"file:{tmp_path / 'log'}", clock=lambda: now)
    view = HandMade(log)
    log.alter("by_page", settings=Settings(history_s=60))
    for n in range(1, 4):
        view.batch(clicks(n), a=n, b=n, c=n, d=n)
        now += 20_000_000
    assert log.upkeep.compact("by_page") == {}  # type: ignore[attr-defined]
    now += 30_000_000
    horizons = log.upkeep.compact("by_page")  # type: ignore[attr-defined]
    assert horizons
    then = log.position_from("by_page", 1_000_000_000 + 20_000_001)
    assert horizons == {p: end for p, end in then.items() if end}, "the first two appends; the third is younger"
    log.close()
