"""Many clients on one account, killed and not: no update is lost, doubled, or decided on an old state."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.decide.together import MOST
from headwater.errors import Contended, NameTaken
from tests.bank import Account, ChangeEmail, Close, Deposit, Open, Withdraw, bank
from tests.crash.clients import Sent, client_process, clients, findings, send, stored, until_killed

SPAWN = multiprocessing.get_context("spawn")


def test_twenty_threads_on_one_account_lose_no_update(tmp_path: Path) -> None:
    app = bank(tmp_path, snapshot_every=7)
    sent = clients(app, "t", 20, 15)
    events = stored(app, "shared")
    assert len(sent) == 300
    assert findings(sent, events) == []
    assert app.deciders["account"].state("shared").balance == sum(each.amount for each in events)
    assert app.deciders["account"].check().sound
    app.close()


@pytest.mark.slow
def test_twenty_clients_in_four_processes_on_one_account_lose_no_update(tmp_path: Path) -> None:
    bank(tmp_path).close()
    answers = SPAWN.Queue()
    processes = [
        SPAWN.Process(target=client_process, args=(str(tmp_path), f"p{number}", 5, 15, answers)) for number in range(4)
    ]
    for each in processes:
        each.start()
    sent = [told for _ in processes for told in answers.get(timeout=120)]
    for each in processes:
        each.join()
    app = bank(tmp_path, snapshot_every=7)
    assert len(sent) == 300
    assert findings(sent, stored(app, "shared")) == []
    assert app.deciders["account"].check().sound
    app.close()


@pytest.mark.slow
def test_clients_killed_in_the_middle_and_sending_again_are_counted_once(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    """Each killed client's last command is unknown; who comes after it sends that one again, under its id."""
    chance = random.Random(random.randrange(1_000_000))
    bank(tmp_path).close()
    acknowledged = SPAWN.Value("q", 0)
    for _ in range(4):
        before = acknowledged.value
        client = SPAWN.Process(target=until_killed, args=(str(tmp_path), "k", before, acknowledged))
        client.start()
        until(lambda before=before: acknowledged.value > before, what="a first command")
        time.sleep(chance.uniform(0, 0.2))  # the random moment, not a wait for anything
        client.kill()
        client.join()
    app = bank(tmp_path, snapshot_every=7)
    done = acknowledged.value
    last = send(app, "shared", f"k-{done}", 1)
    events = stored(app, "shared")
    sent = [Sent(f"k-{number}", 1, "done", number + 1) for number in range(done)]
    assert findings([*sent, last], events) == []
    assert app.deciders["account"].state("shared") == Account(balance=done + 1)
    assert app.deciders["account"].check().sound
    app.close()


class Careless:
    """A log that looks at no version of this topic: the bug that the checker must find."""

    def __init__(self, log: Any, topic: str) -> None:
        self._log, self._topic = log, topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, parts: Any, *, expect: Any) -> Any:
        return self._log.append(parts, expect={name: keys for name, keys in expect.items() if name != self._topic})

    def versions(self, topic: str, keys: Any) -> Any:
        """What was true when it was first asked, as a cache that nobody checks would say."""
        return [0] * len(keys) if topic == self._topic else self._log.versions(topic, keys)


def careless_bank(folder: Path) -> hw.App:
    app = hw.App("bank", log=f"file:{folder}")
    app.log = Careless(app.log, "account")  # type: ignore[assignment]
    from tests.bank import ACCOUNT

    app.decider("account", **ACCOUNT)
    return app


def test_the_checker_finds_updates_that_were_decided_on_an_old_state(tmp_path: Path) -> None:
    first, second = careless_bank(tmp_path), careless_bank(tmp_path)
    first.deciders["account"].state("shared")
    second.deciders["account"].state("shared")
    sent = [send(first, "shared", "a", 5), send(second, "shared", "b", 5)]
    told = findings(sent, stored(first, "shared"))
    assert any("decided on a state that was not the last" in each for each in told)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("sent", "kept", "told"),
    [
        (Sent("a", 5, "done", 1), [], "a was acknowledged and is lost"),
        (Sent("a", 5, "refused"), [("a", 5, 1)], "a was refused and is there"),
        (Sent("a", 5, "unknown"), [("a", 5, 1), ("a", 5, 2)], "a is there 2 times"),
        (Sent("a", 5, "done", 1), [("a", 4, 1)], "a is there as 4"),
        (Sent("a", 5, "done", 2), [("a", 5, 1)], "a was told version 2, it is 1"),
        (Sent("a", -5, "done", 1), [("a", -5, 1)], "after event 1 the balance is -5"),
        (Sent("a", 5, "unknown"), [("b", 5, 1)], "b was sent by nobody"),
    ],
)
def test_the_checker_finds_each_kind_of_loss(sent: Sent, kept: list[tuple[str, int, int]], told: str) -> None:
    from tests.crash.clients import Stored

    assert told in findings([sent], [Stored(*each) for each in kept])


def test_the_checker_lets_an_unknown_outcome_be_either(tmp_path: Path) -> None:
    from tests.crash.clients import Stored

    assert findings([Sent("a", 5, "unknown")], []) == []
    assert findings([Sent("a", 5, "unknown")], [Stored("a", 5, 1)]) == []


def test_one_name_for_one_account_however_many_ask_at_once(tmp_path: Path) -> None:
    apps = [bank(tmp_path, unique=lambda account: [("email", account.email)]) for _ in range(3)]
    outcomes: list[str] = []

    def ask(number: int) -> None:
        try:
            apps[number % 3].command("account", f"a{number}", Open("same@x"))
            outcomes.append("opened")
        except NameTaken:
            outcomes.append("taken")

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert sorted(outcomes) == ["opened"] + ["taken"] * 11
    assert apps[0].deciders["account"].check().sound
    for app in apps:
        app.close()


def test_a_name_is_held_given_up_and_taken_again(tmp_path: Path) -> None:
    app = bank(tmp_path, unique=lambda account: [("email", account.email)])
    app.command("account", "a", Open("x@x"))
    with pytest.raises(NameTaken, match="the email 'x@x' is taken by another account") as caught:
        app.command("account", "b", Open("x@x"))
    assert (caught.value.scope, caught.value.value) == ("email", "x@x")
    assert app.deciders["account"].version("b") == 0
    app.command("account", "a", ChangeEmail("y@x"))
    app.command("account", "b", Open("x@x"))
    with pytest.raises(NameTaken):
        app.command("account", "a", ChangeEmail("x@x"))
    app.command("account", "b", Close())
    app.command("account", "a", ChangeEmail("x@x"))
    rows = app.log.topic("account.reserved")
    assert rows.upsert
    checked = app.deciders["account"].check()
    assert (checked.sound, checked.aggregates) == (True, 2)
    app.close()


def test_check_finds_a_name_that_two_hold(tmp_path: Path) -> None:
    app = bank(tmp_path)  # before names had to be unique
    app.command("account", "a", Open("x@x"))
    app.command("account", "b", Open("x@x"))
    app.close()
    strict = bank(tmp_path, unique=lambda account: [("email", account.email)])
    assert strict.deciders["account"].check().findings == ("email 'x@x' is held by 2: 'a', 'b'",)
    strict.close()


def test_others_that_are_always_faster_end_in_an_error(tmp_path: Path) -> None:
    other = bank(tmp_path)

    def decide(command: Any, account: Account) -> list[Any]:
        from tests.bank import Deposited

        if command == Deposit(1):
            other.command("account", "a", Deposit(2))
        return [Deposited(command.amount)]

    app = bank(tmp_path, decide=decide, tries=3)
    with pytest.raises(Contended, match="changed by others at each of 3 tries"):
        app.command("account", "a", Deposit(1))
    assert app.deciders["account"].state("a").balance == 6
    assert app.command("account", "a", Deposit(5)).version == 4
    app.close()
    other.close()


def test_more_clients_than_a_group_holds_are_all_answered(tmp_path: Path) -> None:
    app = bank(tmp_path)
    count = MOST + 20
    asking = [threading.Thread(target=app.command, args=("account", f"a{n % 7}", Deposit(1))) for n in range(count)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert sum(app.deciders["account"].version(f"a{n}") for n in range(7)) == count
    app.close()


def test_in_a_group_the_bad_ones_are_told_and_the_others_done(tmp_path: Path) -> None:
    app = bank(tmp_path)
    outcomes: dict[int, str] = {}

    def ask(number: int) -> None:
        command: Any = Withdraw(1) if number % 3 == 0 else Deposit(2**70 if number % 3 == 1 else 1)
        try:
            app.command("account", f"a{number}", command)
            outcomes[number] = "done"
        except hw.errors.HeadwaterError as error:
            outcomes[number] = type(error).__name__

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    expected = {0: "CommandRefused", 1: "BadRecord", 2: "done"}
    assert outcomes == {number: expected[number % 3] for number in range(30)}
    app.close()
