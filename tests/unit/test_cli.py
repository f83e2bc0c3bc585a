from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEADWATER = str(Path(sys.executable).with_name("headwater"))
APP = """
import headwater as hw
app = hw.App("shop", log="file:{folder}")
clicks = app.topic("clicks", {{"user_id": "int64", "page": "string"}}, key="user_id")
app.view("by_page", sql="SELECT page, count(*) AS views FROM clicks GROUP BY page")
"""


def headwater(*args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([HEADWATER, *args], input=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP.format(folder=tmp_path / "log"))
    subprocess.run([sys.executable, str(file)], check=True)
    return file


def test_records_go_in_and_out_as_lines(app: Path) -> None:
    log = f"file:{app.parent / 'log'}"
    lines = "".join(json.dumps({"user_id": n, "page": f"/{n}"}) + "\n" for n in range(5))
    done = headwater("topic", "append", "clicks", "--log", log, given=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("clicks:")
    read = headwater("topic", "read", "clicks", "--log", log)
    rows = [json.loads(line) for line in read.stdout.splitlines()]
    assert sorted((row["user_id"], row["page"]) for row in rows) == [(n, f"/{n}") for n in range(5)]
    assert set(rows[0]) == {"user_id", "page", "_partition", "_offset", "_appended_at"}
    listed = json.loads(headwater("topic", "list", "--log", log, "--json").stdout)
    assert listed == [{"topic": "clicks", "kind": "stream", "partitions": 4, "records": 5}]


def test_a_closed_pipe_ends_quietly(app: Path) -> None:
    log = f"file:{app.parent / 'log'}"
    lines = "".join(json.dumps({"user_id": n, "page": "/" * 100}) + "\n" for n in range(5000))
    headwater("topic", "append", "clicks", "--log", log, given=lines)
    piped = subprocess.run(
        f"{HEADWATER} topic read clicks --log {log} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(piped.stdout.splitlines()) == 1
    assert piped.stderr == ""


def test_an_error_is_one_line_with_what_to_do_and_an_exit_code(app: Path) -> None:
    done = headwater("topic", "read", "nope", "--log", f"file:{app.parent / 'log'}")
    assert done.returncode == 3
    assert done.stderr == "headwater: there is no topic 'nope'. Topics here: clicks.\n"


def test_views_of_an_app_without_running_it(app: Path) -> None:
    listed = json.loads(headwater("view", "list", "--app", str(app), "--json").stdout)
    assert listed == [{"view": "by_page", "key": "page", "covers": ""}]
    assert json.loads(headwater("view", "get", "by_page", "--app", str(app), "--json").stdout) == []
    assert headwater("view", "get", "nope", "--app", str(app)).returncode == 3


def test_a_file_without_an_app_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    done = headwater("run", str(empty))
    assert (done.returncode, done.stderr) == (
        2,
        f"headwater: {empty} declares 0 apps. Declare exactly one at the top level: app = hw.App('name').\n",
    )


@pytest.mark.parametrize("noun", [[], ["run"], ["topic"], ["view"]])
def test_help_is_there(noun: list[str]) -> None:
    done = headwater(*noun, "--help")
    assert done.returncode == 0
    assert "Usage: headwater" in done.stdout
