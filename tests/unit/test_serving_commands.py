"""`headwater token`, `user`, `sql` and `serve`, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import cli
from headwater.errors import HeadwaterError, Unauthenticated

HEADWATER = str(Path(sys.executable).with_name("headwater"))
SHOP = """
import headwater as hw
app = hw.App("shop", log="file:{folder}")
clicks = app.topic("clicks", {{"user_id": "int64", "page": "string"}}, key="user_id")
app.view("by_page", sql="SELECT page, count(*) AS views FROM clicks GROUP BY page")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with hw.App("shop", log=f"file:{tmp_path / 'log'}") as app:
        app.topic("clicks", {"user_id": "int64", "page": "string"}, key="user_id").append(
            [{"user_id": 1, "page": "/"}, {"user_id": 2, "page": "/b"}]
        )
    return tmp_path / "log"


def headwater(folder: Path, *args: str, given: str = "") -> str:
    done = CliRunner().invoke(cli, [*args, "--log", f"file:{folder}"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_tokens_are_made_listed_and_revoked(folder: Path) -> None:
    made = json.loads(headwater(folder, "token", "create", "web", "--allow", "append topic:clicks", "--json"))
    assert made["token"].startswith(f"hw_{made['id']}_")
    (row,) = json.loads(headwater(folder, "token", "list", "--json"))
    assert (row["token"], row["principal"], row["rules"]) == (made["id"], "web", "allow append topic:clicks")
    assert made["token"] not in headwater(folder, "token", "list")
    headwater(folder, "token", "revoke", made["id"])
    assert json.loads(headwater(folder, "token", "list", "--json")) == []


def test_an_expiring_token_says_until_when(folder: Path) -> None:
    headwater(folder, "token", "create", "web", "--expires", "30 days")
    (row,) = json.loads(headwater(folder, "token", "list", "--json"))
    assert row["expires"] > row["made"]


def test_users_are_added_listed_and_removed(folder: Path) -> None:
    headwater(folder, "user", "add", "ada", "--allow", "* *", "--password-stdin", given="a long password\n")
    (row,) = json.loads(headwater(folder, "user", "list", "--json"))
    assert row == {"user": "ada", "rules": "allow * *"}
    headwater(folder, "user", "remove", "ada")
    assert json.loads(headwater(folder, "user", "list", "--json")) == []


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["token", "create", "web", "--allow", "fly topic:x"], "is no rule"),
        (["token", "create", "web", "--expires", "soon"], "not a length of time"),
        (["token", "create", "a b"], "cannot name anybody"),
        (["token", "revoke", "nothing"], "there is no token 'nothing'"),
        (["user", "remove", "nobody"], "there is no user 'nobody'"),
        (["sql", "DROP TABLE clicks"], "not a SELECT"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, args: list[str], told: str) -> None:
    with pytest.raises(HeadwaterError, match=told):
        headwater(folder, *args)


def test_sql_is_answered_from_the_log(folder: Path) -> None:
    rows = json.loads(headwater(folder, "sql", "SELECT page, count(*) AS n FROM clicks GROUP BY page", "--json"))
    assert sorted((row["page"], row["n"]) for row in rows) == [("/", 1), ("/b", 1)]


@pytest.mark.slow
def test_serve_serves_a_log_and_an_apps_views_until_it_is_told_to_end(
    folder: Path, tmp_path: Path, until: Callable[..., None]
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP.format(folder=folder))
    secret = headwater(folder, "token", "create", "web", "--allow", "* *").strip()
    words = tmp_path / "words"
    with words.open("w") as out:
        serving = subprocess.Popen(
            [HEADWATER, "serve", str(file), "--http", "127.0.0.1:0"], stderr=out, env={**os.environ, "NO_COLOR": "1"}
        )
    try:
        until(lambda: "serving http://" in words.read_text(), what="the server")
        url = words.read_text().split()[-1]
        with hw.Client(url, token=secret) as client:
            client.topic("clicks").append([{"user_id": 3, "page": "/c"}])
            assert client.topic("clicks").read().num_rows == 3
            assert [view["view"] for view in client.views()] == ["by_page"]
        with hw.Client(url) as stranger, pytest.raises(Unauthenticated):
            stranger.topics()
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(20) == 0
    assert secret not in words.read_text()
