"""`headwater decider ...`: what an app's deciders hold, told in words and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import cli
from headwater.errors import DeciderNotFound
from tests.bank import Deposit, bank

FILE = """
from tests.bank import ACCOUNT
import headwater as hw
app = hw.App("bank", log="file:{folder}")
app.decider("account", **ACCOUNT)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = bank(tmp_path / "log")
    made.command("account", "a", Deposit(10), command_id="first")
    made.command("account", "a", Deposit(5))
    made.close()
    path = tmp_path / "bank_app.py"
    path.write_text(FILE.format(folder=tmp_path / "log"))
    return str(path)


def told(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["decider", *words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_states_and_histories_are_shown(file: str) -> None:
    assert json.loads(told("list", file, "--json"))[0]["topic"] == "account"
    assert told("state", file, "account", "a") == "Account(balance=15, email=None)\n"
    past = json.loads(told("state", file, "account", "a", "--as-of", "1", "--json"))
    assert past == {"id": "a", "version": 1, "state": {"balance": 10, "email": None}}
    first, second = json.loads(told("history", file, "account", "a", "--json"))
    assert (first["event"], first["command_id"], second["version"]) == ({"amount": 10}, "first", 2)


def test_check_says_what_it_compared_and_fails_when_it_differs(file: str, tmp_path: Path) -> None:
    assert told("check", file) == "account: 1 aggregates, 2 events, 0 snapshots, as the events say\n"
    made = bank(tmp_path / "log")
    row = {**made.topics["account"].read().to_pylist()[0], "version": 7}
    made.topics["account"].append([{name: value for name, value in row.items() if not name.startswith("_")}])
    made.close()
    found = json.loads(told("check", file, "account", "--json", code=7))
    assert (found["sound"], found["findings"]) == (False, ["'a': event 7 follows event 2"])


def test_an_unknown_decider_is_named(file: str) -> None:
    with pytest.raises(DeciderNotFound, match="there is no decider 'acount'. Deciders here: account"):
        told("check", file, "acount")
