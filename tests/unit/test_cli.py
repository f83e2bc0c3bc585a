from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each command is a process of its own

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
    refused = headwater("view", "get", "by_page", "--app", str(app), "--where", "nope = 1")
    assert (refused.returncode, "there is no column 'nope'" in refused.stderr) == (2, True)


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


def test_a_topic_pipes_into_another_as_lines_and_as_arrow(tmp_path: Path) -> None:
    log = f"file:{tmp_path / 'log'}"
    for name in ("a", "b", "c"):
        made = headwater("topic", "create", name, "--columns", "k:int64, tags:list<string>", "--key", "k", "--log", log)
        assert made.returncode == 0, made.stderr
    headwater("topic", "append", "a", "--log", log, given='{"k": 1, "tags": ["x", null]}\n{"k": 2}\n')
    for source, target, how in (("a", "b", ""), ("b", "c", "--arrow")):
        pipe = (
            f"{HEADWATER} topic read {source} --log {log} {how} | {HEADWATER} topic append {target} --log {log} {how}"
        )
        done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=False)
        assert done.stderr == ""
    rows = [json.loads(line) for line in headwater("topic", "read", "c", "--log", log).stdout.splitlines()]
    assert sorted((row["k"], row["tags"]) for row in rows) == [(1, ["x", None]), (2, None)]


def test_a_topic_is_altered_described_forgotten_and_deleted(tmp_path: Path) -> None:
    log = f"file:{tmp_path / 'log'}"
    headwater("topic", "create", "t", "--columns", "k:int32", "--key", "k", "--log", log)
    headwater("topic", "append", "t", "--log", log, given='{"k": 1}\n{"k": 2}\n')
    assert headwater("topic", "alter", "t", "--add", "v:string", "--widen", "k:int64", "--log", log).returncode == 0
    told = json.loads(headwater("topic", "describe", "t", "--log", log, "--json").stdout)
    assert told["columns"] == {"k": "int64", "v": "string"}
    assert sum(extent["end"] for extent in told["extents"].values()) == 2
    forgotten = json.loads(headwater("topic", "forget", "t", "--key", "k=1", "--yes", "--json", "--log", log).stdout)
    assert forgotten[0]["records"] == 1
    rows = [json.loads(line)["k"] for line in headwater("topic", "read", "t", "--log", log).stdout.splitlines()]
    assert rows == [2]
    refused = headwater("topic", "alter", "t", "--widen", "k:string", "--log", log)
    assert (
        refused.returncode,
        refused.stderr.startswith("headwater: topic 't', column 'k': int64 cannot become string"),
    ) == (4, True)
    assert headwater("upkeep", "--log", log, "--json").returncode == 0
    assert headwater("topic", "delete", "t", "--yes", "--log", log).returncode == 0
    assert headwater("topic", "read", "t", "--log", log).returncode == 3


def test_following_writes_records_as_they_come(tmp_path: Path) -> None:
    log = f"file:{tmp_path / 'log'}"
    headwater("topic", "create", "t", "--columns", "k:int64", "--log", log)
    following = subprocess.Popen(
        [HEADWATER, "topic", "read", "t", "--follow", "--log", log], stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    for number in range(3):
        headwater("topic", "append", "t", "--log", log, given=json.dumps({"k": number}))
        assert json.loads(following.stdout.readline())["k"] == number
    following.terminate()
    following.wait(10)
    following.stdout.close()
