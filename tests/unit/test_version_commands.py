"""`headwater run --plan` and `headwater view versions|rebuild|switch|drop`, called in this process, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import main, topic, view
from headwater.cli.run import load_app
from headwater.errors import HeadwaterError, PlanChanged, UsageError, VersionRefused, ViewNotFound
from headwater.log import Position, Progress, TopicSpec
from headwater.process.lineage import Declared
from headwater.process.version import Version
from headwater.process.versions import Versions
from headwater.records import schema_of
from headwater.serve.store import Mark
from headwater.serve.stores.sqlite import SqliteStore

APP = """
import headwater as hw
app = hw.App("shop", log="file:{folder}")
clicks = app.topic("clicks", {{"user_id": "int64", "page": "string"}}, key="user_id")
app.view("by_page", sql="SELECT page, count(*) AS views FROM clicks GROUP BY page")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "shop.py"
    made.write_text(APP.format(folder=tmp_path / "data"))
    monkeypatch.setenv("HEADWATER_APP", str(made))
    return made


@pytest.fixture
def versions(file: Path) -> Any:
    """Version 1 is current, version 2 is built; each has a topic, a folder and a store."""
    log = hw.open(f"file:{file.parent / 'data'}")
    log.create(TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",)))
    known = Versions(log, app="shop")
    known.declare(Declared("by_page", "aa", {"buckets": 4}, ("clicks",)))
    known.built(known.begin_rebuild([Declared("by_page", "bb", {"buckets": 8}, ("clicks",))]))
    for each in known.of("by_page"):
        log.create(TopicSpec(each.topic, schema_of({"page": "string"}), key=("page",), kind="table"))
        each.folder(file.parent / "data").mkdir(parents=True)
        SqliteStore(each.store(file.parent / "data"), schema_of({"page": "string"}), ("page",)).close()
    yield known
    log.close()


def answer(*args: str, given: str = "") -> Any:
    """What it wrote as JSON; what it raised, raised here."""
    done = CliRunner().invoke(view.cli, [*args, "--json"], input=given)
    if isinstance(done.exception, HeadwaterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def told(rows: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    return [(row["version"], row["state"], row["topic"]) for row in rows]


def test_versions_are_listed(versions: Versions) -> None:
    rows = answer("versions", "by_page")
    assert told(rows) == [(1, "current", "by_page"), (2, "built", "by_page.v2")]
    assert set(rows[0]) == {"view", "version", "state", "topic", "covers", "fingerprint", "changed_at"}
    with pytest.raises(ViewNotFound):
        answer("versions", "nope")


def test_a_view_that_never_ran_has_no_versions(file: Path) -> None:
    assert answer("versions", "by_page") == []


def test_switching_there_and_back(versions: Versions) -> None:
    assert told(answer("switch", "by_page")) == [(2, "current", "by_page.v2")]
    assert told(answer("versions", "by_page")) == [(1, "previous", "by_page"), (2, "current", "by_page.v2")]
    assert told(answer("switch", "by_page", "--back")) == [(1, "current", "by_page")]
    assert told(answer("switch", "by_page", "--version", "2")) == [(2, "current", "by_page.v2")]
    with pytest.raises(VersionRefused, match="no newer version than 2"):
        answer("switch", "by_page")
    with pytest.raises(UsageError, match="--back and --version"):
        answer("switch", "by_page", "--back", "--version", "1")


def test_dropping_removes_the_topic_the_store_and_the_folder(versions: Versions, file: Path) -> None:
    (version,) = [each for each in versions.of("by_page") if each.version == 2]
    removed = answer("drop", "by_page", "--version", "2", "--yes")
    assert {row["removed"].rsplit("/", 1)[-1] for row in removed} == {
        "topic by_page.v2",
        "bb.v2",
        "by_page@bb.v2.db",
    }
    assert not version.folder(file.parent / "data").exists()
    with pytest.raises(VersionRefused, match="version 1 is current"):
        answer("drop", "by_page", "--version", "1", "--yes")


def test_dropping_asks_first(versions: Versions) -> None:
    refused = CliRunner().invoke(view.cli, ["drop", "by_page", "--version", "2"], input="n\n")
    assert refused.exit_code == 1
    assert "It can only be built again" in refused.output
    assert [each.state for each in versions.of("by_page")] == ["current", "built"]


def test_the_last_version_of_a_view_that_is_gone_can_be_dropped(versions: Versions, file: Path) -> None:
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "app.view" not in line))
    answer("drop", "by_page", "--version", "1", "--yes")
    current: Version | None = versions.current("by_page")
    assert current is None


def plan(file: Path, *more: str) -> str:
    done = CliRunner().invoke(main.cli, ["run", str(file), "--plan", *more])
    if isinstance(done.exception, HeadwaterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_plan_of_a_run_shows_what_would_change_and_changes_nothing(file: Path) -> None:
    assert plan(file) == (
        f"+ by_page  new\n    reads clicks\n    -> `headwater run {file}` builds it from the log\n\n"
        "1 new. Nothing was run.\n"
    )
    with load_app(file) as app:
        assert [change.kind for change in app.diff()] == ["new"]
        assert [spec.name for spec in app.log.topics()] == ["clicks"]
        app._running._declare()
        assert [change.kind for change in app.diff()] == ["unchanged"]
    file.write_text(file.read_text().replace("GROUP BY page", "WHERE page <> '/' GROUP BY page"))
    (change,) = json.loads(plan(file, "--json"))
    assert (change["name"], change["kind"]) == ("by_page", "changed")
    assert change["details"][0] == "filter of input 'clicks' was none, is clicks.page <> '/'"
    assert change["do"] == f"`headwater view rebuild by_page --app {file}`"
    with load_app(file) as app, pytest.raises(PlanChanged, match="filter of input 'clicks' was none"):
        app.run()
    with pytest.raises(UsageError, match="--json is for --plan"):
        CliRunner().invoke(main.cli, ["run", str(file), "--json"], catch_exceptions=False)


def test_a_rebuild_that_cannot_be_is_refused_before_spark_starts(file: Path) -> None:
    with pytest.raises(ViewNotFound, match="Views here: by_page"):
        answer("rebuild", "nope")
    with pytest.raises(VersionRefused, match="it was never built"):
        answer("rebuild", "by_page")
    assert answer("versions", "by_page") == []


def test_a_begun_version_without_its_checkpoint_must_be_dropped(versions: Versions, file: Path) -> None:
    with load_app(file) as app:
        (begun,) = versions.begin_rebuild(app._running.declared())
        producer = app.log.begin(begun.producer)
        app.log.append([], producer=producer, sequence=0, progress=Progress(Position(), Position()))
    with pytest.raises(VersionRefused, match="version 3 was begun and cannot go on .* view drop by_page --version 3"):
        answer("rebuild", "by_page")


def test_views_show_the_current_version_whatever_the_code_is(versions: Versions, file: Path) -> None:
    """Its rows have the columns they were built with; reading them needs neither Spark nor the old code."""
    for each in versions.of("by_page"):
        spec = TopicSpec(each.topic, schema_of({"page": "string"}), key=("page",), kind="table")
        store = SqliteStore(each.store(file.parent / "data"), spec.schema, spec.key)
        rows = pa.table({"page": [f"of version {each.version}"], "_weight": [1]})
        covers = Position.of({"clicks": {0: 1}})
        with load_app(file) as app:
            producer, progress = app.log.begin(each.producer), Progress(Position(), covers)
            batch = app.log.append([], producer=producer, sequence=0, progress=progress)
        store.apply(rows, Mark(batch.number, Position(), covers))
        store.close()
    assert answer("get", "by_page") == [{"page": "of version 1"}]
    answer("switch", "by_page")
    assert answer("get", "by_page") == [{"page": "of version 2"}]


def test_a_folder_from_before_versions_were_recorded_opens(file: Path) -> None:
    with load_app(file) as app:
        (declared,) = app._running.declared()
    (file.parent / "data" / "pipelines" / "by_page" / declared.fingerprint).mkdir(parents=True)
    with load_app(file) as app:
        assert [change.kind for change in app.diff()] == ["unchanged"]
        assert [each.tag for each in app._running._declare()] == [declared.fingerprint]
    file.write_text(file.read_text().replace("AS views", "AS n"))
    with load_app(file) as app:
        assert [change.kind for change in app.diff()] == ["changed"]


def test_headwaters_own_topics_are_listed_only_where_asked_for(versions: Versions, file: Path) -> None:
    log = f"file:{file.parent / 'data'}"
    plain = json.loads(CliRunner().invoke(topic.cli, ["list", "--log", log, "--json"]).stdout)
    assert [row["topic"] for row in plain] == ["by_page", "by_page.v2", "clicks"]
    whole = json.loads(CliRunner().invoke(topic.cli, ["list", "--internal", "--log", log, "--json"]).stdout)
    assert "_headwater.pipelines" in [row["topic"] for row in whole]
    missing = CliRunner().invoke(topic.cli, ["read", "nope", "--log", log]).exception
    assert "_headwater" not in str(missing)


def test_a_run_serves_the_version_that_it_runs_though_another_was_open(versions: Versions, file: Path) -> None:
    with load_app(file) as app:
        view, (first, second) = app.views["by_page"], versions.of("by_page")
        assert view.store.path == first.store(app.folder)  # type: ignore[attr-defined]
        app._running.serve(second)
        assert view.store.path == second.store(app.folder)  # type: ignore[attr-defined]
        assert view.read().num_rows == 0
