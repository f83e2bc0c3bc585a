"""The versions of pipelines: what may run, what is switched together, and who wins."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import NotCurrent, PlanChanged, UsageError, VersionRefused, VersionsRaced, ViewNotFound
from headwater.log import Topic, TopicSpec
from headwater.process.decision import UNKNOWN
from headwater.process.lineage import Declared, identified, with_dependents
from headwater.process.registry import TOPIC, Registry
from headwater.process.versions import Versions
from headwater.records import schema_of


def view(name: str = "by_page", mark: str = "aa", inputs: tuple[str, ...] = ("clicks",), **described: Any) -> Declared:
    return Declared(name, mark, described or {"buckets": int(mark, 16)}, inputs)


@pytest.fixture
def log(log: hw.Log) -> hw.Log:
    log.create(TopicSpec("clicks", schema_of({"k": "int64"})))
    return log


@pytest.fixture
def versions(log: hw.Log) -> Versions:
    return Versions(log, app="shop")


def states(versions: Versions, name: str = "by_page") -> list[str]:
    return [each.state for each in versions.of(name)]


def rebuilt(versions: Versions, *wanted: Declared) -> None:
    versions.built(versions.begin_rebuild(wanted))


# --- what may run ---


def test_looking_makes_nothing(log: hw.Log, versions: Versions) -> None:
    assert versions.of("by_page") == []
    assert versions.current("by_page") is None
    assert versions.decide(view()).kind == "new"
    assert [spec.name for spec in log.topics()] == ["clicks"]


def test_the_first_declaration_is_version_1_and_the_second_is_the_same(versions: Versions) -> None:
    first = versions.declare(view())
    assert first.kind == "new"
    assert first.refusal is None
    assert first.version is not None
    assert (first.version.topic, first.version.producer) == ("by_page", "by_page@aa")
    again = versions.declare(view())
    assert (again.kind, again.version) == ("same", first.version)
    (row,) = versions.of("by_page")
    assert (row.app, row.inputs, row.state, row.description) == (
        "shop",
        {"clicks": "clicks"},
        "current",
        {"buckets": 0xAA},
    )
    assert row.made_at == row.changed_at


def test_changed_code_is_refused_with_what_changed_and_what_to_run(versions: Versions) -> None:
    versions.declare(view())
    decision = versions.declare(view(mark="bb"))
    assert decision.kind == "changed"
    assert isinstance(decision.refusal, PlanChanged)
    assert str(decision.refusal) == (
        "view 'by_page' has changed since it was built: number of buckets was 170, is 187. Nothing was run. "
        "`headwater view rebuild by_page --app FILE` builds the new version beside the old one; "
        "`headwater run FILE --plan` shows every change."
    )
    assert len(versions.of("by_page")) == 1


def test_a_version_is_built_beside_switched_and_switched_back(versions: Versions) -> None:
    old, new = view(), view(mark="bb")
    versions.declare(old)
    (version,) = versions.begin_rebuild([new])
    assert (version.version, version.topic, version.producer) == (2, "by_page.v2", "by_page@bb.v2")
    assert states(versions) == ["current", "building"]
    refusal = versions.declare(new).refusal
    assert isinstance(refusal, NotCurrent)
    assert "goes on where it stopped" in str(refusal)
    assert versions.declare(old).kind == "same"

    versions.built([version])
    assert states(versions) == ["current", "built"]
    assert str(versions.declare(new).refusal) == (
        "version 2 of view 'by_page' is built but not current, version 1 is. "
        "Run `headwater view switch by_page --version 2 --app FILE`."
    )
    assert [each.version for each in versions.switch("by_page")] == [2]
    assert states(versions) == ["previous", "current"]
    assert versions.declare(new).kind == "same"
    assert str(versions.declare(old).refusal) == (
        "this code is version 1 of view 'by_page', version 2 is current. "
        "Deploy the newer code, or run `headwater view switch by_page --back --app FILE`."
    )
    assert [each.version for each in versions.switch_back("by_page")] == [1]
    assert states(versions) == ["current", "built"]
    assert versions.declare(old).kind == "same"
    versions.switch("by_page")
    assert states(versions) == ["previous", "current"]


def test_back_and_forth_over_three_versions(versions: Versions) -> None:
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    rebuilt(versions, view(mark="cc"))
    versions.switch("by_page")
    assert states(versions) == ["previous", "built", "current"]
    with pytest.raises(VersionRefused, match="no newer version than 3 that is built"):
        versions.switch("by_page")
    versions.switch("by_page", version=2)
    assert states(versions) == ["previous", "current", "built"]
    versions.switch_back("by_page")
    assert states(versions) == ["current", "built", "built"]
    with pytest.raises(VersionRefused, match="none to go back to"):
        versions.switch_back("by_page")
    assert versions.switch("by_page", version=1)[0].state == "current"


def test_a_rebuild_that_was_cut_short_goes_on(versions: Versions, log: hw.Log) -> None:
    versions.declare(view())
    (first,) = versions.begin_rebuild([view(mark="bb")])
    # The process ends here; the next one, over the same log, finds what was begun.
    (again,) = Versions(log).begin_rebuild([view(mark="bb")])
    assert again == first
    versions.built([first])
    versions.built([first])  # said twice, as after a crash between this and the answer
    assert states(versions) == ["current", "built"]


def test_the_same_code_can_be_built_again(versions: Versions) -> None:
    """As after the loss of a checkpoint: nothing of the lost version is used, not even its names."""
    versions.declare(view())
    (again,) = versions.begin_rebuild([view()])
    assert (again.version, again.tag, again.topic) == (2, "aa.v2", "by_page.v2")
    assert versions.declare(view()).version == versions.current("by_page")
    versions.built([again])
    versions.switch("by_page")
    decision = versions.declare(view())
    assert (decision.kind, decision.version and decision.version.version) == ("same", 2)


def test_what_is_not_built_is_not_switched_to(versions: Versions) -> None:
    with pytest.raises(ViewNotFound, match="there is no view 'by_page'"):
        versions.switch("by_page")
    versions.declare(view())
    with pytest.raises(VersionRefused, match="`headwater view rebuild by_page --app FILE` builds one"):
        versions.switch("by_page")
    versions.begin_rebuild([view(mark="bb")])
    with pytest.raises(VersionRefused, match="built to the end; nothing was changed. .* goes on with it"):
        versions.switch("by_page")
    with pytest.raises(VersionRefused, match="version 2 is not built to the end"):
        versions.switch("by_page", version=2)
    with pytest.raises(VersionRefused, match=r"no version 7; .* Versions: 1 \(current\), 2 \(building\)"):
        versions.switch("by_page", version=7)


# --- old folders ---


def test_what_was_built_before_versions_were_recorded_is_version_1(log: hw.Log) -> None:
    versions = Versions(log, found={"by_page": "aa", "other": "ff"})
    assert versions.decide(view()).kind == "same"
    assert [spec.name for spec in log.topics()] == ["clicks"]
    decision = versions.declare(view())
    assert (decision.kind, decision.version and decision.version.tag) == ("same", "aa")
    assert Versions(log).of("by_page")[0].description == {"buckets": 0xAA}  # now it is known


def test_what_was_built_before_and_has_changed_is_refused_and_can_be_rebuilt(log: hw.Log) -> None:
    versions = Versions(log, found={"by_page": "aa"})
    decision = versions.declare(view(mark="bb"))
    assert (decision.kind, decision.details) == ("changed", (UNKNOWN,))
    rebuilt(versions, view(mark="bb"))
    assert [each.fingerprint for each in Versions(log).of("by_page")] == ["aa", "bb"]
    versions.switch("by_page")
    versions.switch_back("by_page")
    assert states(Versions(log)) == ["current", "built"]


# --- races and crashes ---


def test_of_two_who_act_at_once_one_is_refused(
    log: hw.Log, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    write = Registry.write

    def beaten(self: Registry, *given: Any) -> Any:
        """Another process is faster, between our reading and our writing."""
        monkeypatch.setattr(Registry, "write", write)
        Versions(log).drop("by_page", 2)
        return write(self, *given)

    monkeypatch.setattr(Registry, "write", beaten)
    with pytest.raises(VersionsRaced, match="those of 'by_page' were not changed"):
        versions.switch("by_page")
    assert states(versions) == ["current", "dropped"]


def test_a_change_of_another_view_counts_as_a_race_too(
    log: hw.Log, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who becomes a reader of version 1 while it is switched away would be left behind."""
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    write = Registry.write

    def beaten(self: Registry, *given: Any) -> Any:
        monkeypatch.setattr(Registry, "write", write)
        Versions(log).declare(view("top", "dd", ("by_page",)))
        return write(self, *given)

    monkeypatch.setattr(Registry, "write", beaten)
    with pytest.raises(VersionsRaced):
        versions.switch("by_page")


def test_many_that_declare_at_once_agree_on_one_version(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'log'}"
    kinds: list[str] = []

    def declare(mark: str) -> None:
        with_own_log = hw.open(url)
        kinds.append(Versions(with_own_log).declare(view(mark=mark)).kind)
        with_own_log.close()

    threads = [threading.Thread(target=declare, args=(mark,)) for mark in ("aa", "bb", "aa", "bb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kinds) == ["changed", "changed", "new", "same"]
    opened = hw.open(url)
    assert len(Versions(opened).of("by_page")) == 1
    opened.close()


def test_a_crash_while_switching_leaves_the_old_or_the_new_never_both(
    log: hw.Log, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one append and nothing around it: before it all is old, after it all is new."""
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    before = log.snapshot([TOPIC])
    append = type(log).append

    def cut(self: Any, *given: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(log), "append", cut)
    with pytest.raises(KeyboardInterrupt):
        versions.switch("by_page")
    monkeypatch.setattr(type(log), "append", append)
    assert states(versions) == ["current", "built"]
    versions.switch("by_page")
    after = log.snapshot([TOPIC])
    assert after.number == before.number + 1
    assert states(versions) == ["previous", "current"]


def test_compaction_leaves_the_versions_as_they_are(log: hw.Log, versions: Versions) -> None:
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    versions.switch("by_page")
    before = versions.all()
    log.upkeep.run()  # type: ignore[attr-defined]
    log.upkeep.compact(TOPIC)  # type: ignore[attr-defined]
    assert Topic(log, log.topic(TOPIC)).read().num_rows == 3
    assert versions.all() == before
    versions.switch_back("by_page")
    assert states(versions) == ["current", "built"]


# --- names ---


def test_topics_of_others_are_not_written_to(log: hw.Log, versions: Versions) -> None:
    versions.declare(view())
    log.create(TopicSpec("by_page.v2", schema_of({"k": "int64"})))
    with pytest.raises(VersionRefused, match="'by_page.v2', which is there already"):
        versions.begin_rebuild([view(mark="bb")])
    log.delete("by_page.v2")
    versions.begin_rebuild([view(mark="bb")])
    with pytest.raises(VersionRefused, match="is that of version 2 of 'by_page'"):
        versions.declare(view("by_page.v2", "dd"))


# --- views on views ---


def chain(mark: str = "aa") -> list[Declared]:
    """top reads by_page, far reads top; apart reads neither."""
    return identified(
        [
            view("far", "f1", ("top", "clicks")),
            view("top", "d1", ("by_page",)),
            view("by_page", mark),
            view("apart", "e1"),
        ]
    )


def test_a_change_is_a_change_of_all_that_depend_on_it() -> None:
    one, two = ({each.name: each.fingerprint for each in chain(mark)} for mark in ("aa", "bb"))
    assert {name for name in one if one[name] != two[name]} == {"by_page", "top", "far"}
    order = [each.name for each in chain()]
    assert order.index("by_page") < order.index("top") < order.index("far")
    assert [each.name for each in with_dependents("by_page", chain())] == ["by_page", "top", "far"]
    assert [each.name for each in with_dependents("top", chain())] == ["top", "far"]
    assert one["apart"] == "e1"  # what reads no pipeline has the fingerprint of its plan, as ever


def test_a_circle_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot depend on itself"):
        identified([view("a", inputs=("b",)), view("b", inputs=("a",))])


def declared_chain(versions: Versions) -> None:
    for each in chain():
        assert versions.declare(each).refusal is None


def test_dependents_are_rebuilt_and_switched_together_in_one_append(log: hw.Log, versions: Versions) -> None:
    declared_chain(versions)
    new = chain("bb")
    refusal = versions.declare(new[[each.name for each in new].index("top")]).refusal
    assert isinstance(refusal, PlanChanged)
    assert refusal.details == ("its input 'by_page' has changed",)
    begun = versions.begin_rebuild(with_dependents("by_page", new))
    assert {each.name: dict(each.inputs) for each in begun} == {
        "by_page": {"clicks": "clicks"},
        "top": {"by_page": "by_page.v2"},
        "far": {"top": "top.v2", "clicks": "clicks"},
    }
    versions.built(begun[:2])
    with pytest.raises(VersionRefused, match="'far' reads it and has no version that was built on version 2"):
        versions.switch("by_page")
    versions.built(begun)
    before = log.snapshot([TOPIC]).number
    assert sorted(each.name for each in versions.switch("far")) == ["by_page", "far", "top"]
    assert log.snapshot([TOPIC]).number == before + 1
    assert [versions.current(name).version for name in ("by_page", "top", "far", "apart")] == [2, 2, 2, 1]  # type: ignore[union-attr]
    for each in new:
        assert versions.declare(each).kind == "same"
    versions.switch_back("top")
    assert [versions.current(name).version for name in ("by_page", "top", "far")] == [1, 1, 1]  # type: ignore[union-attr]
    for each in chain():
        assert versions.declare(each).kind == "same"


def test_a_dependent_is_not_rebuilt_on_what_has_changed_itself(versions: Versions) -> None:
    declared_chain(versions)
    with pytest.raises(VersionRefused, match="it reads 'by_page', which has changed itself; .* rebuild by_page"):
        versions.begin_rebuild(with_dependents("top", chain("bb")))


def test_a_dependent_that_never_ran_is_left_to_its_first_run(versions: Versions) -> None:
    versions.declare(view())
    new = identified([view(mark="bb"), view("top", "d1", ("by_page",))])
    assert [each.name for each in versions.begin_rebuild(with_dependents("by_page", new))] == ["by_page"]
    versions.built(versions.of("by_page"))
    versions.switch("by_page")
    decision = versions.declare(new[1])
    assert (decision.kind, decision.version and dict(decision.version.inputs)) == ("new", {"by_page": "by_page.v2"})


def test_a_reader_that_is_not_declared_any_more_holds_a_switch_until_it_is_dropped(versions: Versions) -> None:
    declared_chain(versions)
    rebuilt(versions, view(mark="bb"))
    with pytest.raises(VersionRefused, match="if 'top' is no longer declared, `headwater view drop` it"):
        versions.switch("by_page")
    with pytest.raises(VersionRefused, match="version 1 is read by version 1 of 'far'"):
        versions.drop("top", 1, gone=True)
    versions.drop("far", 1, gone=True)
    versions.drop("top", 1, gone=True)
    assert [each.name for each in versions.switch("by_page")] == ["by_page"]


# --- dropping ---


def test_dropping(versions: Versions) -> None:
    versions.declare(view())
    rebuilt(versions, view(mark="bb"))
    with pytest.raises(VersionRefused, match="version 1 is current; nothing was changed. Switch to another"):
        versions.drop("by_page", 1)
    versions.switch("by_page")
    dropped = versions.drop("by_page", 1)
    assert dropped.state == "dropped"
    assert versions.drop("by_page", 1) == dropped  # a removal that was cut short is done again
    assert states(versions) == ["dropped", "current"]
    with pytest.raises(VersionRefused, match="none to go back to"):
        versions.switch_back("by_page")
    assert versions.declare(view()).kind == "changed"
    (again,) = versions.begin_rebuild([view()])
    assert again.version == 3  # numbers, and so topics and folders, are never used twice
    with pytest.raises(ViewNotFound):
        versions.drop("nope", 1)


def test_a_view_that_was_dropped_whole_can_be_declared_again(versions: Versions) -> None:
    versions.declare(view())
    versions.drop("by_page", 1, gone=True)
    decision = versions.declare(view())
    assert (decision.kind, decision.version and decision.version.tag) == ("new", "aa.v2")
