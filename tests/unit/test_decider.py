"""Commands become events: decided, refused, repeated, replayed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

import headwater as hw
from headwater import errors
from headwater.decide import nearby
from tests.bank import ACCOUNT, Account, Close, Closed, Deposit, Deposited, Open, Opened, Withdraw, Withdrawn, bank


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    made = bank(tmp_path / "log")
    yield made
    made.close()


def other_process(app: hw.App) -> hw.App:
    """Another app on the same log: it shares nothing with the first but what is on disk."""
    return bank(app.folder)


def test_a_command_gives_its_events_and_the_version_after_them(app: hw.App) -> None:
    app.command("account", "a", Deposit(10))
    decided = app.command("account", "a", Close())
    assert decided.events == (Withdrawn(10), Closed())
    assert decided.version == 3
    assert not decided.repeated
    assert app.topics["account"].end().covers(decided.position)


def test_events_are_rows_that_sql_can_use(app: hw.App) -> None:
    app.command("account", "a", Open("a@x"), command_id="c1")
    app.command("account", "a", Deposit(10))
    table = app.topics["account"].read()
    rows = table.select(["id", "version", "type", "revision", "command_id", "amount", "email"]).to_pylist()
    assert rows == [
        {"id": "a", "version": 1, "type": "Opened", "revision": 1, "command_id": "c1", "amount": None, "email": "a@x"},
        {"id": "a", "version": 2, "type": "Deposited", "revision": 1, "command_id": None, "amount": 10, "email": None},
    ]
    assert app.log.topic("account").time == "at"


def test_a_refused_command_is_an_error_and_no_event(app: hw.App) -> None:
    with pytest.raises(errors.CommandRefused, match="account 'a', Withdraw: the balance is 0") as caught:
        app.command("account", "a", Withdraw(5))
    assert caught.value.why == "the balance is 0"
    assert app.deciders["account"].history("a") == []
    assert app.topics["account"].read().num_rows == 0


def test_an_exception_that_the_decider_names_is_a_refusal_and_any_other_a_fault(tmp_path: Path) -> None:
    def odd(command: object, account: Account) -> list[object]:
        raise KeyError("seat") if isinstance(command, Close) else ValueError("no")

    app = bank(tmp_path / "log", decide=odd, refusals=[ValueError])
    with pytest.raises(errors.CommandRefused, match="Deposit: no") as refused:
        app.command("account", "a", Deposit(1))
    assert isinstance(refused.value.__cause__, ValueError)
    with pytest.raises(errors.DecisionFailed, match="decide raised KeyError: 'seat'"):
        app.command("account", "a", Close())
    app.close()


def test_a_stale_cache_refuses_nothing_that_the_log_would_allow(app: hw.App) -> None:
    app.command("account", "a", Deposit(1))
    other = other_process(app)
    other.command("account", "a", Deposit(100))
    assert app.command("account", "a", Withdraw(50)).version == 3
    other.close()


def test_expect_is_the_version_that_the_caller_has_seen(app: hw.App) -> None:
    app.command("account", "a", Deposit(1), expect=0)
    with pytest.raises(errors.VersionConflict, match="version 1, not 0"):
        app.command("account", "a", Deposit(1), expect=0)
    assert app.command("account", "a", Deposit(1), expect=1).version == 2


def test_the_same_command_id_is_answered_with_the_first_answer(app: hw.App) -> None:
    app.command("account", "a", Deposit(10))
    first = app.command("account", "a", Withdraw(10), command_id="w1")
    again = app.command("account", "a", Withdraw(10), command_id="w1")
    assert (again.events, again.version, again.position) == (first.events, first.version, first.position)
    assert again.repeated
    assert app.deciders["account"].state("a").balance == 0


def test_another_process_answers_a_repeated_command_from_the_log(app: hw.App) -> None:
    app.command("account", "a", Deposit(10))
    first = app.command("account", "a", Withdraw(10), command_id="w1")
    app.command("account", "a", Deposit(5))
    other = other_process(app)
    again = other.command("account", "a", Withdraw(10), command_id="w1")
    assert (again.events, again.version, again.position, again.repeated) == (
        first.events,
        first.version,
        first.position,
        True,
    )
    other.close()


def test_a_command_without_events_is_remembered_too(app: hw.App) -> None:
    app.command("account", "a", Open("a@x"))
    assert app.command("account", "a", Open("a@x"), command_id="o").events == ()
    app.command("account", "a", Close())
    other = other_process(app)
    again = other.command("account", "a", Open("a@x"), command_id="o")
    assert (again.events, again.version, again.repeated) == ((), 1, True)
    other.close()


def test_command_ids_belong_to_their_aggregate(app: hw.App) -> None:
    app.command("account", "a", Deposit(1), command_id="x")
    assert not app.command("account", "b", Deposit(1), command_id="x").repeated


def test_a_refused_command_may_be_sent_again_under_its_id(app: hw.App) -> None:
    with pytest.raises(errors.CommandRefused):
        app.command("account", "a", Withdraw(1), command_id="w")
    app.command("account", "a", Deposit(1))
    assert not app.command("account", "a", Withdraw(1), command_id="w").repeated


def test_the_past_by_version_time_and_position(tmp_path: Path) -> None:
    moments = iter(range(1_000_000, 10**9, 1_000_000))
    app = hw.App("bank", log=f"file:{tmp_path / 'log'}", clock=lambda: next(moments))
    account = app.decider("account", **ACCOUNT)
    app.command("account", "a", Deposit(1))
    second = app.command("account", "a", Deposit(10))
    app.command("account", "a", Deposit(100))
    history = account.history("a")
    assert [(each.version, each.event) for each in history] == [(n + 1, Deposited(10**n)) for n in range(3)]
    assert account.state("a").balance == 111
    assert account.state("a", as_of=0) == Account()
    assert account.state("a", as_of=2).balance == 11
    assert account.state("a", as_of=second.position).balance == 11
    assert account.state("a", as_of=history[1].at).balance == 11
    assert account.state("a", as_of=history[2].at - timedelta(microseconds=1)).balance == 11
    assert account.state("a", as_of=datetime(1970, 1, 1, tzinfo=UTC)).balance == 0
    app.close()


def test_snapshots_spare_the_replay_and_agree_with_it(tmp_path: Path) -> None:
    app = bank(tmp_path / "log", snapshot_every=10)
    for _ in range(25):
        app.command("account", "a", Deposit(1))
    app.close()
    seen: list[object] = []

    def counting(account: Account, event: object) -> Account:
        seen.append(event)
        return ACCOUNT["evolve"](account, event)

    again = bank(tmp_path / "log", snapshot_every=10)
    assert again.deciders["account"].state("a").balance == 25
    checked = again.deciders["account"].check()
    assert (checked.sound, checked.events, checked.snapshots) == (True, 25, 1)
    again.close()
    changed = bank(tmp_path / "log", snapshot_every=10, evolve=counting)
    assert changed.deciders["account"].state("a").balance == 25
    assert len(seen) == 25, "snapshots of other code are not used"
    for _ in range(10):
        changed.command("account", "a", Deposit(1))
    changed.close()
    seen.clear()
    last = bank(tmp_path / "log", snapshot_every=10, evolve=counting)
    assert last.deciders["account"].state("a").balance == 35
    assert len(seen) < 10, "a snapshot was begun with"
    last.close()


def falsify(app: hw.App, statement: str) -> None:
    file = apsw.Connection(str(app.folder / "deciders" / "account.db"))
    file.execute(statement)
    file.close()


def test_a_damaged_snapshot_is_not_used(tmp_path: Path) -> None:
    app = bank(tmp_path / "log", snapshot_every=2)
    for _ in range(4):
        app.command("account", "a", Deposit(1))
    falsify(app, """UPDATE snapshots SET state = '{"balance": 1000, "email": null}'""")
    again = bank(tmp_path / "log", snapshot_every=2)
    assert again.deciders["account"].state("a").balance == 4
    again.close()
    app.close()


def test_check_finds_a_snapshot_that_the_events_contradict(tmp_path: Path) -> None:
    wrong = bank(tmp_path / "log", snapshot_every=2)
    for _ in range(4):
        wrong.command("account", "a", Deposit(1))
    account = wrong.deciders["account"]
    (snapshot,) = account._nearby.snapshots()
    forged = type(snapshot)(**{**vars(snapshot), "state": '{"balance":7,"email":null}'})
    account._nearby.put([forged])
    checked = account.check()
    assert not checked.sound
    assert "the snapshot of version 4 says Account(balance=7" in checked.findings[0]
    wrong.close()


@pytest.fixture
def all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place is looked up in the file beside the log, none in the log itself."""
    monkeypatch.setattr(nearby, "LAG", 0)


@pytest.mark.usefixtures("all_places")
def test_what_lies_beside_the_log_may_be_lost_or_damaged(app: hw.App) -> None:
    for number in range(20):
        app.command("account", f"a{number % 3}", Deposit(1))
    assert len(app.deciders["account"].history("a0")) == 7
    app.deciders["account"].close()
    (app.folder / "deciders" / "account.db").write_bytes(b"not a database" * 100)
    damaged = other_process(app)
    assert [damaged.deciders["account"].state(f"a{n}").balance for n in range(3)] == [7, 7, 6]
    damaged.close()
    (app.folder / "deciders" / "account.db").unlink()
    lost = other_process(app)
    assert [lost.deciders["account"].state(f"a{n}").balance for n in range(3)] == [7, 7, 6]
    lost.close()


@pytest.mark.usefixtures("all_places")
def test_places_of_another_log_are_noticed(app: hw.App) -> None:
    for _ in range(3):
        app.command("account", "a", Deposit(1))
        app.command("account", "b", Deposit(1))
    assert len(app.deciders["account"].history("a")) == 3
    falsify(app, 'DELETE FROM places WHERE "offset" = 2')
    other = other_process(app)
    assert len(other.deciders["account"].history("a")) == 3
    falsify(app, 'DELETE FROM places WHERE "offset" = 2')
    assert other.deciders["account"].state("b").balance == 3
    other.close()


def test_records_that_no_command_made_are_told(app: hw.App) -> None:
    app.command("account", "a", Deposit(1))
    app.topics["account"].append(
        [{"id": "a", "version": 9, "type": "Deposited", "revision": 1, "amount": 1, "at": datetime.now(UTC)}]
    )
    with pytest.raises(errors.HistoryBroken, match="event 9 follows event 1"):
        app.command("account", "a", Deposit(1))
    assert app.deciders["account"].check().findings == ("'a': event 9 follows event 1",)


def test_a_forgotten_aggregate_begins_again(app: hw.App) -> None:
    app.command("account", "a", Deposit(10))
    app.log.upkeep.forget("account", keys=[{"id": "a"}])  # type: ignore[attr-defined]
    app.deciders["account"].forget("a")
    assert app.deciders["account"].state("a") == Account()
    assert app.command("account", "a", Deposit(1)).version == 1


def test_rolled_up_history_is_found_as_before(app: hw.App) -> None:
    for number in range(60):
        app.command("account", f"a{number % 3}", Deposit(1), command_id=str(number))
    app.log.upkeep.roll_up("account", least_chunks=2)  # type: ignore[attr-defined]
    app.log.upkeep.roll_up("account.commands", least_chunks=2)  # type: ignore[attr-defined]
    other = other_process(app)
    assert [each.command_id for each in other.deciders["account"].history("a1")] == [str(n) for n in range(1, 60, 3)]
    assert other.command("account", "a1", Deposit(1), command_id="31").version == 11
    other.close()


def test_submit_takes_json_and_says_what_does_not_fit(app: hw.App) -> None:
    account = app.deciders["account"]
    assert account.submit("a", "Deposit", {"amount": 10}, "c").events == (Deposited(10),)
    assert account.submit("a", "Deposit", {"amount": 10}, "c").repeated
    for kind, payload, told in [
        ("Deposit", {"amount": "10"}, "field 'amount': input should be a valid integer"),
        ("Deposit", {"amount": True}, "field 'amount': input should be a valid integer"),
        ("Deposit", {"amount": 1.5}, "field 'amount': input should be a valid integer"),
        ("Deposit", {}, "field 'amount': field required"),
        ("Deposit", {"amount": 1, "more": 2}, "field 'more': extra inputs are not permitted"),
        ("Deposit", ["amount"], "not an object"),
        ("Deposited", {"amount": 1}, "no such command. Commands here: Open, Deposit, Withdraw, ChangeEmail, Close"),
    ]:
        with pytest.raises(errors.BadCommand, match=told) as caught:
            account.submit("a", kind, payload, None)  # type: ignore[arg-type]
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(errors.BadCommand, match="is no id"):
        account.submit("", "Deposit", {"amount": 1}, None)
    assert account.version("a") == 1


def test_commands_made_in_python_are_checked_as_well(app: hw.App) -> None:
    with pytest.raises(errors.BadCommand, match="field 'amount'"):
        app.command("account", "a", Deposit("10"))  # type: ignore[arg-type]
    with pytest.raises(errors.BadCommand, match="is no command of this decider"):
        app.command("account", "a", Deposited(10))
    with pytest.raises(errors.DeciderNotFound, match="Deciders here: account"):
        app.command("acount", "a", Deposit(10))


def test_a_number_too_large_for_its_column_is_told_to_its_sender(app: hw.App) -> None:
    with pytest.raises(errors.HeadwaterError, match="amount"):
        app.command("account", "a", Deposit(2**70))
    assert app.command("account", "a", Deposit(1)).version == 1


def test_opened_twice_is_one_event(app: hw.App) -> None:
    assert app.command("account", "a", Open("a@x")).events == (Opened("a@x"),)
    assert app.command("account", "a", Open("a@x")).events == ()
