"""A rebuild without Spark: what would change, what is missing, how far it is, what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import Fenced, InputsGone, Pinned, VersionRefused
from headwater.log import Position, Progress, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.process.changes import Change, rendered, what_would_change
from headwater.process.discard import discard
from headwater.process.lineage import Declared, identified
from headwater.process.rebuild import Build
from headwater.process.version import Version, first_versions
from headwater.process.versions import Versions
from headwater.records import schema_of

BUCKETS = {"aa": 4, "bb": 8}


def view(name: str = "by_page", mark: str = "aa", inputs: tuple[str, ...] = ("clicks",)) -> Declared:
    return Declared(name, mark, {"buckets": BUCKETS.get(mark, 4)}, inputs)


@pytest.fixture
def clicks(log: hw.Log) -> Topic:
    return Topic(log, log.create(TopicSpec("clicks", schema_of({"k": "int64"}), partitions=2)))


# --- what would change ---


def changes(versions: Versions, *declared: Declared) -> list[Change]:
    return what_would_change(identified(declared), versions.all(), app="shop")


def test_new_unchanged_changed_and_gone(log: hw.Log, clicks: Topic) -> None:
    versions = Versions(log, app="shop")
    top = view("top", "dd", ("by_page",))
    for each in identified([view(), top, view("stays"), view("old")]):
        versions.declare(each)
    Versions(log, app="another").declare(view("theirs"))
    told = changes(versions, view(mark="bb"), top, view("stays"), view("fresh"))
    by_name = {each.name: each for each in told}
    assert by_name == {
        "by_page": Change(
            "by_page", "changed", ["number of buckets was 4, is 8"], "`headwater view rebuild by_page --app FILE`"
        ),
        "top": Change("top", "changed", ["its input 'by_page' has changed"], "It is rebuilt with by_page"),
        "stays": Change("stays", "unchanged", [], ""),
        "fresh": Change("fresh", "new", ["reads clicks"], "`headwater run FILE` builds it from the log"),
        "old": Change(
            "old",
            "gone",
            ["version 1 stays as it is, nothing keeps it up to date"],
            "`headwater view drop old --version 1 --app FILE` removes it",
        ),
    }
    text = rendered(sorted(told, key=lambda each: each.name))
    assert text == (
        "~ by_page  changed\n"
        "    number of buckets was 4, is 8\n"
        "    -> `headwater view rebuild by_page --app FILE`\n"
        "+ fresh    new\n"
        "    reads clicks\n"
        "    -> `headwater run FILE` builds it from the log\n"
        "- old      gone\n"
        "    version 1 stays as it is, nothing keeps it up to date\n"
        "    -> `headwater view drop old --version 1 --app FILE` removes it\n"
        "= stays    unchanged\n"
        "~ top      changed\n"
        "    its input 'by_page' has changed\n"
        "    -> It is rebuilt with by_page\n"
        "\n"
        "1 new, 1 unchanged, 2 changed, 1 gone. Nothing was run."
    )


def test_a_version_that_only_waits_to_be_switched_to_says_so(log: hw.Log, clicks: Topic) -> None:
    versions = Versions(log, app="shop")
    versions.declare(view())
    versions.built(versions.begin_rebuild([view(mark="bb")]))
    (change,) = changes(versions, view(mark="bb"))
    assert change.details == ["version 2 of view 'by_page' is built but not current, version 1 is"]
    assert change.do == "Run `headwater view switch by_page --version 2 --app FILE`"


def test_an_app_without_views_changes_nothing(log: hw.Log) -> None:
    assert rendered(changes(Versions(log))) == "No views. Nothing was run."


# --- what is missing ---


def test_a_rebuild_from_what_retention_left_must_be_asked_for(tmp_path: Path) -> None:
    now = [1_000_000]
    log = EmbeddedLog(tmp_path / "log", clock=lambda: now[0])
    spec = TopicSpec("clicks", schema_of({"k": "int64"}), partitions=1, settings=Settings(retain_s=1))
    clicks = Topic(log, log.create(spec))
    versions = Versions(log)
    versions.declare(view())
    clicks.append([{"k": n} for n in range(3)])
    now[0] += 60_000_000
    clicks.append([{"k": 3}])
    log.upkeep.run()
    with pytest.raises(InputsGone, match="'clicks', partition 0, what was before offset 3 has been removed") as told:
        versions.begin_rebuild([view(mark="bb")])
    assert "--from-retained" in told.value.do
    assert len(versions.of("by_page")) == 1
    (version,) = versions.begin_rebuild([view(mark="bb")], from_retained=True)
    assert version.from_retained
    assert versions.of("by_page")[1].from_retained
    assert Build(log, [version], lambda each: Position()).line() == "building by_page version 2: 0 %"
    log.close()


def test_a_compacted_table_is_whole(log: hw.Log) -> None:
    spec = TopicSpec("users", schema_of({"k": "int64"}), key=("k",), kind="table", partitions=1)
    users = Topic(log, log.create(spec))
    for weight in (1, -1, 1):
        users.append([{"k": 1, "_weight": weight}])
    log.upkeep.compact("users")  # type: ignore[attr-defined]
    assert log.extents("users")[0].horizon == 3
    versions = Versions(log)
    versions.declare(view(inputs=("users",)))
    assert versions.begin_rebuild([view(mark="bb", inputs=("users",))])[0].state == "building"


# --- how far it is ---


def test_progress_counts_the_records_of_the_inputs_and_ends_when_all_are_covered(log: hw.Log, clicks: Topic) -> None:
    covered: dict[str, Position] = {}
    version = Version("by_page", 2, "bb", {}, {"clicks": "clicks"}, "building")
    clicks.append([{"k": n} for n in range(6)], partition=0)
    clicks.append([{"k": n} for n in range(4)], partition=1)
    build = Build(log, [version], lambda each: covered.get(each.name, Position()))
    assert not build.done()
    assert build.line() == "building by_page version 2: 0 %"
    clicks.append([{"k": 9}], partition=0)  # came after it was begun: not waited for
    covered["by_page"] = Position.of({"clicks": {0: 7, 1: 0}})
    assert not build.done()
    assert build.line() == "building by_page version 2: 60 %"
    covered["by_page"] = Position.of({"clicks": {0: 6, 1: 4}})
    assert build.done()
    assert build.line() == "building by_page version 2: 100 %"


def test_a_dependent_is_done_when_it_covers_what_the_view_before_it_came_to(log: hw.Log, clicks: Topic) -> None:
    covered: dict[str, Position] = {}
    first = Version("by_page", 2, "bb", {}, {"clicks": "clicks"}, "building")
    second = Version("top", 2, "dd", {}, {"by_page": "by_page.v2"}, "building")
    clicks.append([{"k": 1}], partition=0)
    build = Build(log, [first, second], lambda each: covered.get(each.name, Position()))
    assert not build.done()
    assert build.line() == "building by_page version 2: 0 %, top version 2: 0 %"
    output = Topic(log, log.create(TopicSpec("by_page.v2", schema_of({"k": "int64"}), partitions=1)))
    output.append([{"k": 1}])
    covered["by_page"] = Position.of({"clicks": {0: 1}})
    assert not build.done()  # the table of the first is there, the second has not read it
    assert build.line() == "building by_page version 2: 100 %, top version 2: 0 %"
    covered["top"] = Position.of({"by_page.v2": {0: 1}})
    assert build.done()


def test_nothing_in_the_inputs_is_done_at_once(log: hw.Log, clicks: Topic) -> None:
    version = Version("by_page", 2, "bb", {}, {"clicks": "clicks"}, "building")
    assert Build(log, [version], lambda each: Position()).done()


# --- what is left ---


class Built:
    """Two versions with all that they leave: topics, pins, folders, stores."""

    def __init__(self, log: hw.Log, root: Path) -> None:
        self.log, self.root = log, root
        self.versions = Versions(log, app="shop")
        self.versions.declare(view())
        self.versions.built(self.versions.begin_rebuild([view(mark="bb")]))
        for version in self.versions.of("by_page"):
            log.create(TopicSpec(version.topic, schema_of({"k": "int64"}), key=("k",), kind="table"))
            producer = log.begin(version.producer)
            log.append([], producer=producer, sequence=0, progress=Progress(Position(), Position()))
            log.pin(version.producer, Position(), topics=["clicks"])
            log.pin(f"store of {version.topic}", Position(), topics=[version.topic])
            (version.folder(root) / "checkpoint").mkdir(parents=True)
            version.store(root).parent.mkdir(exist_ok=True)
            version.store(root).write_text("rows")

    def remains(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if "by_page" in path.name} | {
            spec.name for spec in self.log.topics() if spec.name.startswith("by_page")
        }


@pytest.fixture
def built(log: hw.Log, clicks: Topic, tmp_path: Path) -> Built:
    return Built(log, tmp_path / "data")


def test_a_dropped_version_leaves_nothing_and_the_other_one_all(built: Built, log: hw.Log) -> None:
    running = log.begin("by_page@bb.v2")
    removed = discard(log, built.versions.drop("by_page", 2), built.root)
    assert [each.rsplit("/", 1)[-1] for each in removed] == ["topic by_page.v2", "bb.v2", "by_page@bb.v2.db"]
    assert built.remains() == {"pipelines/by_page", "stores/by_page@aa.db", "by_page"}
    with pytest.raises(Fenced):  # a run of it that did not know goes no further
        log.append([], producer=running, sequence=1)
    assert discard(log, built.versions.drop("by_page", 2), built.root) == []
    assert first_versions(built.root) == {"by_page": "aa"}


def test_what_is_not_dropped_is_not_removed(built: Built, log: hw.Log) -> None:
    with pytest.raises(VersionRefused, match="version 2 is not dropped"):
        discard(log, built.versions.of("by_page")[1], built.root)


@pytest.mark.parametrize("step", ["begin", "unpin", "delete"])
def test_a_removal_that_was_cut_short_is_done_again(
    built: Built, log: hw.Log, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def cut(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log, step, cut)
        with pytest.raises(KeyboardInterrupt):
            discard(log, built.versions.drop("by_page", 2), built.root)
    discard(log, built.versions.drop("by_page", 2), built.root)
    assert built.remains() == {"pipelines/by_page", "stores/by_page@aa.db", "by_page"}


def test_a_topic_that_somebody_reads_stays_until_they_are_gone(built: Built, log: hw.Log) -> None:
    log.pin("a reader", Position(), topics=["by_page.v2"])
    dropped = built.versions.drop("by_page", 2)
    with pytest.raises(Pinned, match="'a reader'"):
        discard(log, dropped, built.root)
    log.unpin("a reader")
    assert "topic by_page.v2" in discard(log, dropped, built.root)


def test_folders_name_what_was_built_before_versions_were_recorded(tmp_path: Path) -> None:
    for folder in ("by_page/aa", "top.x/cc", "top.x/dd.v2"):
        (tmp_path / "pipelines" / folder).mkdir(parents=True)
    assert first_versions(tmp_path) == {"by_page": "aa", "top.x": "cc"}
    assert first_versions(tmp_path / "nothing") == {}
