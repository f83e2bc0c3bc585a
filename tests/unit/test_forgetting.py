"""Forgetting everywhere, without Spark: what is reached, what begins again, what is refused, what the report says."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import topic as topic_commands
from headwater.cli.run import load_app
from headwater.derived import DerivedFiles
from headwater.errors import (
    AppRunning,
    ForgettingUnderWay,
    HeadwaterError,
    InputsGone,
    NotASource,
    StillAtTheSource,
    UsageError,
)
from headwater.log import Progress, Settings, Topic
from headwater.log.embedded.backup import backup
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.log.position import Position
from headwater.process.checkpoint import BEFORE_FIRST
from headwater.process.inuse import in_use, not_in_use
from headwater.process.lineage import Declared
from headwater.process.parked import parked
from tests.unit.planted import CANARY, ERIKA, Planted, files_with_canary, make, others

ROWS_IN_QUERY = ("queries/shop-1/checkpoint/state/1.changelog", "queries/shop-1/parcels/7a")


@dataclass(frozen=True)
class Join:
    email: str


@dataclass(frozen=True)
class Joined:
    email: str


@dataclass(frozen=True)
class Member:
    email: str = ""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("template") / "data")


@pytest.fixture
def planted(template: Path, tmp_path: Path) -> Iterator[Planted]:
    made = Planted(shutil.copytree(template, tmp_path / "data"))
    yield made
    made.close()


def states(planted: Planted) -> dict[str, list[tuple[int, str]]]:
    return {name: [(each.version, each.state) for each in of] for name, of in planted.versions.all().items()}


def forget(planted: Planted, **how: Any) -> Any:
    return hw.forget(planted.log, "clicks", keys=[ERIKA], **how)


def test_no_file_has_the_person_any_more_and_views_begin_again(planted: Planted) -> None:
    planted.log.catalog.truncate_wal()
    kept, why = "pipelines/top/top-code/kept/chunks/5e1f", "queries/shop-1/parked/top@top-code.json"
    assert {"catalog.db", "spark.log", kept, why, *ROWS_IN_QUERY} <= files_with_canary(planted.folder)
    report = forget(planted)
    planted.log.catalog.truncate_wal()
    assert files_with_canary(planted.folder) == set()
    assert others(planted.log) == sorted(user for user in [*range(3000), *range(10)] if user != 7)
    again = {name: [(1, "dropped"), (2, "current")] for name in ("by_page", "by_user", "top")}
    assert states(planted) == {**again, "rooms": [(1, "current")]}
    assert dict(planted.version("top").inputs) == {"by_user": "by_user.v2"}
    assert (planted.version("top").fingerprint, planted.version("top").app) == ("top-code", "shop")
    assert report.records == 4, "two in clicks, two in the dead letters of its queue"
    assert [(each.view, each.version, each.built) for each in report.built_again] == [
        (name, 2, False) for name in again
    ]


def test_the_report_is_kept_without_data(planted: Planted) -> None:
    report = forget(planted)
    (file,) = (planted.folder / "forgotten").iterdir()
    assert json.loads(file.read_text()) == json.loads(json.dumps(report.as_json()))
    assert CANARY not in file.read_text()
    assert {"backups", "outside"} <= {each.where for each in report.remains}
    assert all(each.until for each in report.remains)


def test_a_dry_run_tells_the_same_and_changes_nothing(planted: Planted) -> None:
    before, known = files_with_canary(planted.folder), states(planted)
    would = forget(planted, dry_run=True)
    assert (files_with_canary(planted.folder), states(planted)) == (before, known)
    assert not (planted.folder / "forgotten").exists()
    did = forget(planted)
    told = {each.where for each in would.removed}
    assert told <= {each.where for each in did.removed}
    assert {"topic clicks", "topic work.dead", "topic top.late", "queries/shop-1/checkpoint/state"} <= told
    assert would.records == did.records


def test_a_second_call_leaves_what_was_never_started_and_takes_what_has_run(planted: Planted) -> None:
    forget(planted)
    assert forget(planted).records == 0
    assert states(planted)["by_page"] == [(1, "dropped"), (2, "current")]
    planted.plant(planted.version("by_user"))  # somebody ran it, and `top` not yet
    forget(planted)
    assert states(planted)["by_user"][-1] == states(planted)["top"][-1] == (3, "current")
    assert states(planted)["by_page"][-1] == (2, "current")
    assert files_with_canary(planted.folder) == set()


def test_a_view_that_only_shares_the_query_goes_on_where_it_was(planted: Planted) -> None:
    lose_some(planted, planted.visits)  # it could not be built again
    rooms, query = planted.version("rooms"), planted.folder / "queries" / "shop-1"
    own = [*rooms.folder(planted.folder).rglob("*"), rooms.store(planted.folder), *query.glob("checkpoint/offsets/*")]
    before = {file: file.read_bytes() for file in own if file.is_file()}
    report = forget(planted)
    assert planted.version("rooms") == rooms
    assert "rooms" not in {each.view for each in report.built_again}
    assert {file: file.read_bytes() for file in before} == before
    assert parked(query, rooms.producer) is not None


def test_rows_that_older_versions_or_a_killed_run_left_in_a_shared_query_are_removed(planted: Planted) -> None:
    forget(planted)
    for file in ROWS_IN_QUERY:
        (planted.folder / file).parent.mkdir()
        (planted.folder / file).write_text(CANARY)
    report = forget(planted)  # though no view is left in the query that could begin again
    folders = {"queries/shop-1/checkpoint/state", "queries/shop-1/parcels"}
    assert {each.where for each in report.removed if each.what == "all of it"} == folders
    assert not any((planted.folder / folder).exists() for folder in folders)


def test_a_backup_does_not_miss_the_versions_that_were_dropped_from_a_shared_query(
    planted: Planted, tmp_path: Path
) -> None:
    forget(planted)
    made = backup(planted.log, tmp_path / "backup", along=DerivedFiles(quiet_s=0))
    assert not [each for each in made.left_out if "checkpoint" in each.what]
    assert list((tmp_path / "backup").glob("queries/shop-1/checkpoint/offsets/0"))


def lose_some(planted: Planted, topic: Topic) -> None:
    """Retention removes what came first."""
    planted.log.alter(topic.name, settings=Settings(retain_bytes=1))
    for version in (each for of in planted.versions.all().values() for each in of):
        planted.log.unpin(version.producer)
    rows = topic.read().drop_columns(["_partition", "_offset", "_appended_at"])
    topic.append(rows.slice(rows.num_rows - 1))
    assert planted.log.upkeep.retain(topic.name)


def test_a_view_that_could_not_be_built_again_in_full_stops_it(planted: Planted) -> None:
    lose_some(planted, planted.clicks)
    before, known = files_with_canary(planted.folder), states(planted)
    with pytest.raises(InputsGone, match="--from-retained"):
        forget(planted)
    assert (files_with_canary(planted.folder), states(planted)) == (before, known)
    forget(planted, from_retained=True)
    assert planted.version("by_page").from_retained


def test_while_an_app_runs_nothing_is_forgotten_and_the_other_way_round(planted: Planted) -> None:
    with in_use(planted.folder), in_use(planted.folder):
        with pytest.raises(AppRunning, match="Stop it"):
            forget(planted)
        assert forget(planted, dry_run=True).dry_run
    assert states(planted)["by_page"] == [(1, "current")]
    with not_in_use(planted.folder), pytest.raises(ForgettingUnderWay), in_use(planted.folder):
        pass


def test_no_run_and_no_rebuild_begins_meanwhile(tmp_path: Path) -> None:
    with hw.App("shop", log=f"file:{tmp_path / 'data'}") as app:
        app.topic("clicks", {"user_id": "int64"}, key="user_id")
        app.view("counts", sql="SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id")
        with not_in_use(app.folder):
            with pytest.raises(ForgettingUnderWay):
                app.run(until="caught-up")
            with pytest.raises(ForgettingUnderWay):
                app.rebuild("counts")


@pytest.mark.parametrize("key", [{"page": "/"}, {}, {"user_id": "seven"}, {"user_id": 2**70}])
def test_a_key_that_is_none_of_the_topics_drops_nothing(planted: Planted, key: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="keys? (of|does not fit that of) 'clicks'"):
        hw.forget(planted.log, "clicks", keys=[key])
    assert states(planted)["by_page"] == [(1, "current")]


@pytest.mark.parametrize("topic", ["by_page", "by_page.late", "top.dead"])
def test_what_a_pipeline_makes_is_forgotten_at_its_source(planted: Planted, topic: str) -> None:
    with pytest.raises(NotASource, match="Forget in what it reads: (clicks|by_user)"):
        hw.forget(planted.log, topic, keys=[ERIKA])


def test_a_stream_that_did_not_begin_at_the_start_begins_where_it_did(planted: Planted) -> None:
    planted.versions.declare(Declared("tail", "tail-code", {"mode": "append"}, ("clicks",)))
    old, begun = planted.version("tail"), Position.of({"clicks": {0: 5, 1: 3}})
    producer = planted.log.begin(old.producer)
    planted.log.append([], producer=producer, sequence=BEFORE_FIRST, progress=Progress(Position(), begun))
    old.folder(planted.folder).mkdir(parents=True)
    forget(planted)
    told = planted.log.covered(planted.version("tail").producer)
    assert told is not None
    assert (told.sequence, told.progress.end) == (BEFORE_FIRST, begun)


def test_a_topic_that_somebodys_queue_reads_stays_without_records(planted: Planted) -> None:
    queues = EmbeddedQueues(planted.log)
    queues.create("letters", "by_page.dead")
    (delivery,) = queues.take("letters", 1)
    queues.reject("letters", delivery.receipt)
    report = forget(planted)
    planted.log.catalog.truncate_wal()
    assert files_with_canary(planted.folder) == set()
    assert Topic(planted.log, planted.log.topic("by_page.dead")).read().num_rows == 0
    assert {"topic letters.dead", "topic by_page.dead"} <= {each.where for each in report.removed}


def test_versions_that_were_dropped_before_leave_nothing_either(planted: Planted) -> None:
    old = planted.version("by_page")
    planted.versions.begin_anew([old])
    assert files_with_canary(planted.folder)  # nobody removed what it left
    forget(planted)
    assert files_with_canary(planted.folder) == set()


def test_a_captured_row_is_deleted_at_its_source_first(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.executescript(
        f"CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT); INSERT INTO users VALUES (7, '{CANARY}'), (8, 'x')"
    )
    with hw.App("shop", log=f"file:{tmp_path / 'data'}") as app:
        users = app.capture(f"sqlite:{tmp_path / 'shop.db'}", tables=["users"])["users"]
        app.run(only="captures", until="caught-up")
        with pytest.raises(StillAtTheSource, match="Delete it there"):
            hw.forget(app, "users", keys=[{"id": 7}])
        database.execute("DELETE FROM users WHERE id = 7")
        app.run(only="captures", until="caught-up")
        report = hw.forget(app, "users", keys=[{"id": 7}])
        assert "the captured database" in {each.where for each in report.remains}
        assert set(users.read()["id"].to_pylist()) == {8}
    database.close()
    assert files_with_canary(tmp_path / "data") == set()


# --- commands ---


@pytest.mark.parametrize("with_app", [True, False])
def test_an_aggregate_is_forgotten_with_its_commands_and_the_names_it_held(tmp_path: Path, with_app: bool) -> None:
    app = hw.App("club", log=f"file:{tmp_path / 'data'}")
    app.decider(
        "member",
        initial=Member(),
        decide=lambda command, state: [Joined(command.email)],
        evolve=lambda state, event: Member(event.email),
        events=[Joined],
        commands=[Join],
        unique=lambda state: [("email", state.email)] if state.email else [],
        snapshot_every=1,
    )
    for who, email in (("erika", f"{CANARY}@example.org"), ("erika", "new@example.org"), ("max", "max@example.org")):
        app.command("member", who, Join(email), command_id=f"{who} {email}")
    assert files_with_canary(tmp_path / "data")
    report = hw.forget(app if with_app else app.log, "member", keys=[{"id": "erika"}])
    assert files_with_canary(tmp_path / "data") == set()
    assert ("topic member.commands", 2) in {(each.where, each.count) for each in report.removed}
    assert [event.event for event in app.deciders["member"].history("max")] == [Joined("max@example.org")]
    assert app.command("member", "erika", Join("new@example.org")).version == 1
    app.close()


def answer(*args: str, given: str = "") -> Any:
    done = CliRunner().invoke(topic_commands.cli, ["forget", *args, "--json"], input=given)
    if isinstance(done.exception, HeadwaterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_plans_asks_and_reports(planted: Planted) -> None:
    log = ["--log", f"file:{planted.folder}"]
    would = answer("clicks", "--key", "user_id=7", "--everywhere", "--dry-run", *log)
    assert would["dry_run"]
    did = answer("clicks", "--keys", "-", "--everywhere", "--yes", *log, given='{"user_id": 7}\n\n{"user_id": 8}\n')
    assert (did["topic"], did["keys"], did["dry_run"]) == ("clicks", 2, False)
    assert {7, 8}.isdisjoint(others(planted.log))


def test_the_command_takes_the_log_of_an_app(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    columns = '{"tenant": "string", "user_id": "int64"}'
    file.write_text(
        f"import headwater as hw\napp = hw.App('shop', log='file:{tmp_path / 'data'}')\n"
        f"app.topic('clicks', {columns}, key=('tenant', 'user_id'))\n"
    )
    with load_app(file) as app:
        app.topics["clicks"].append([{"tenant": tenant, "user_id": user} for tenant in "ab" for user in (7, 8)])
    told = answer("clicks", "--key", "tenant=a", "--key", "user_id=7", "--everywhere", "--app", str(file), "--yes")
    assert told["removed"] == [{"where": "topic clicks", "what": "records", "count": 1}]
    with load_app(file) as app:
        left = app.topics["clicks"].read().select(["tenant", "user_id"]).to_pylist()
    assert sorted(tuple(row.values()) for row in left) == [("a", 8), ("b", 7), ("b", 8)]


def test_the_command_shows_three_tables(planted: Planted) -> None:
    command = ["forget", "clicks", "--key", "user_id=7", "--everywhere", "--log", f"file:{planted.folder}"]
    refused = CliRunner().invoke(topic_commands.cli, command, input="n\n")
    assert "clicks and all that was made from it? This cannot be undone" in refused.output
    assert states(planted)["by_page"] == [(1, "current")]
    told = CliRunner().invoke(topic_commands.cli, [*command, "--yes"]).stdout
    places = [told.index(title) for title in ("Removed:", "Built again from the log:", "Remains:")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("args", "given", "told"),
    [
        (["clicks", "--key", "user_id=seven"], "", "a key does not fit that of 'clicks'"),
        (["clicks", "--key", "page=x"], "", "is not in the key of 'clicks'"),
        (["clicks"], "", "no key was given"),
        (["clicks", "--keys", "-"], "[1]\n", "line 1 of --keys is no JSON object"),
        (["clicks", "--keys", "-"], "{\n", "line 1 of --keys is no JSON object"),
        (["clicks", "--key", "user_id=7", "--dry-run"], "", "go with --everywhere"),
        (["_headwater.pipelines", "--key", "name=x", "--key", "version=1", "--everywhere"], "", "is Headwater's own"),
    ],
)
def test_what_cannot_be_meant_is_refused(planted: Planted, args: list[str], given: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        answer(*args, "--yes", "--log", f"file:{planted.folder}", given=given)
