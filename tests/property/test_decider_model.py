"""Random commands of several clients, interleaved, against a plain model: a list of events for each account."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import headwater as hw
from headwater.decide import nearby
from headwater.errors import CommandRefused, NameTaken
from tests.bank import Account, ChangeEmail, Close, Deposit, Deposited, Open, Withdraw, Withdrawn, bank

CLIENTS = 3
accounts = st.sampled_from(["a", "b", "c"])
clients = st.integers(0, CLIENTS - 1)
emails = st.sampled_from(["x@x", "y@x", "z@x"])
commands = st.one_of(
    st.builds(Open, emails),
    st.builds(Deposit, st.integers(1, 9)),
    st.builds(Withdraw, st.integers(1, 9)),
    st.builds(ChangeEmail, emails),
    st.builds(Close),
)


class DeciderModel(RuleBasedStateMachine):
    """`balances`, `emails` and `counts` say what is to be; written without the decider's own functions."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(nearby, "LAG", 2)  # so that places are found both ways
        self.folder = Path(tempfile.mkdtemp())
        self.apps = [self._opened() for _ in range(CLIENTS)]
        self.balances: dict[str, int] = {}
        self.emails: dict[str, str | None] = {}
        self.counts: dict[str, int] = {}
        self.answered: dict[tuple[str, str], tuple[tuple[Any, ...], int]] = {}
        self.past: list[tuple[str, int, int]] = []

    def _opened(self) -> hw.App:
        return bank(self.folder, snapshot_every=3, unique=lambda account: [("email", account.email)])

    def teardown(self) -> None:
        for app in self.apps:
            app.close()
        shutil.rmtree(self.folder)
        self.patched.undo()

    def _expected(self, each: str, command: Any) -> int | None:
        """How many events it gives; None: it is refused. The model moves on."""
        balance, email = self.balances.get(each, 0), self.emails.get(each)
        held = {other for name, other in self.emails.items() if name != each and other is not None}
        count = 1
        if isinstance(command, Open | ChangeEmail):
            if isinstance(command, Open) and email is not None:
                return 0
            if command.email in held:
                return None
            email = command.email
        elif isinstance(command, Deposit):
            balance += command.amount
        elif isinstance(command, Withdraw):
            if command.amount > balance:
                return None
            balance -= command.amount
        else:
            count, balance, email = (2 if balance else 1), 0, None
        self.balances[each], self.emails[each] = balance, email
        self.counts[each] = self.counts.get(each, 0) + count
        self.past.append((each, self.counts[each], balance))
        return count

    @rule(client=clients, each=accounts, command=commands, named=st.none() | st.sampled_from(["1", "2", "3", "4"]))
    def send(self, client: int, each: str, command: Any, named: str | None) -> None:
        key = (each, named or "")
        if named is not None and key in self.answered:
            decided = self.apps[client].command("account", each, command, command_id=named)
            assert decided.repeated
            assert (decided.events, decided.version) == self.answered[key]
            return
        expected = self._expected(each, command)
        try:
            decided = self.apps[client].command("account", each, command, command_id=named)
        except (CommandRefused, NameTaken):
            assert expected is None
            return
        assert len(decided.events) == expected
        assert decided.version == self.counts.get(each, 0)
        if named is not None:
            self.answered[key] = decided.events, decided.version

    @rule(client=clients)
    def start_again(self, client: int) -> None:
        self.apps[client].close()
        self.apps[client] = self._opened()

    @rule()
    def upkeep(self) -> None:
        for topic in ("account", "account.commands"):
            self.apps[0].log.upkeep.roll_up(topic, least_chunks=2)  # type: ignore[attr-defined]
        self.apps[0].log.upkeep.compact("account.reserved")  # type: ignore[attr-defined]

    @rule(client=clients)
    def lose_what_lies_beside_the_log(self, client: int) -> None:
        for app in self.apps:
            app.deciders["account"].close()
        shutil.rmtree(self.folder / "deciders", ignore_errors=True)

    @precondition(lambda self: self.past)
    @rule(client=clients, data=st.data())
    def look_back(self, client: int, data: st.DataObject) -> None:
        each, version, balance = data.draw(st.sampled_from(self.past))
        assert self.apps[client].deciders["account"].state(each, as_of=version).balance == balance

    @rule(client=clients)
    def check(self, client: int) -> None:
        checked = self.apps[client].deciders["account"].check()
        assert checked.findings == ()
        assert checked.events == sum(self.counts.values())

    @invariant()
    def every_client_sees_the_same(self) -> None:
        for app in self.apps:
            for each in ("a", "b", "c"):
                expected = Account(self.balances.get(each, 0), self.emails.get(each))
                assert app.deciders["account"].state(each) == expected


DeciderModel.TestCase.settings = settings(settings.default, stateful_step_count=25)
test_deciders_do_what_the_model_says = DeciderModel.TestCase


def test_the_sum_of_deposits_and_withdrawals_is_the_balance(tmp_path: Path) -> None:
    """The model is itself compared: with the events as they rest in the topic."""
    app = bank(tmp_path)
    for number in range(10):
        app.command("account", "a", Deposit(number + 1))
    app.command("account", "a", Withdraw(30))
    signs = {Deposited.__name__: 1, Withdrawn.__name__: -1}
    rows = app.topics["account"].read().to_pylist()
    assert sum(signs[row["type"]] * row["amount"] for row in rows) == app.deciders["account"].state("a").balance == 25
    app.close()
