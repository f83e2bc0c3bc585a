"""Files that grow: each whole line once, through rotation by rename and by truncation; what does not fit is told."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.capture.feeds import tail, watching
from headwater.capture.feeds.spec import FeedSpec, TailSettings
from headwater.capture.feeds.tail import TailCapture
from headwater.capture.runner import Capturing
from headwater.cli.main import cli
from headwater.errors import BadCapture, BadLine
from headwater.log import Settings, TopicSpec
from headwater.records import schema_of
from tests.capture.database import caught_up


class Tailing:
    """A folder of files, and captures of it, one after the other."""

    def __init__(self, folder: Path, log: hw.Log, until: Callable[..., None]) -> None:
        self.folder = folder
        self.log = log
        self.until = until
        self.running: list[Capturing] = []

    def write(self, name: str, text: str | bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def tail(self, pattern: str = "*.log", into: str | hw.Topic = "lines", **settings: Any) -> Capturing:
        spec = FeedSpec("files", f"tail:{self.folder}/{pattern}", into, TailSettings(**settings))
        capture = TailCapture(spec, self.log)
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        capturing.start()
        self.running.append(capturing)
        return capturing

    def stop(self) -> None:
        for capturing in self.running:
            capturing.stop()

    def caught_up(self, capturing: Capturing) -> None:
        caught_up(capturing, self.until)

    def rows(self, topic: str = "lines") -> list[dict[str, Any]]:
        rows = hw.Topic(self.log, self.log.topic(topic)).read().to_pylist()
        return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))

    def lines(self, name: str = "") -> list[str]:
        return [row["line"] for row in self.rows() if row["file"].endswith(name)]


@pytest.fixture
def files(
    tmp_path: Path, log: hw.Log, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tailing]:
    monkeypatch.setattr(tail, "LOOK_S", 0.02)
    monkeypatch.setattr(tail, "POLL_S", 0.01)
    folder = tmp_path / "files"
    folder.mkdir()
    made = Tailing(folder, log, until)
    yield made
    made.stop()


def test_lines_that_are_there_and_lines_that_come_in_files_by_pattern(files: Tailing) -> None:
    files.write("a.log", "one\ntwo\r\n\nthr")
    capturing = files.tail()
    files.caught_up(capturing)
    assert files.lines() == ["one", "two"]
    files.write("a.log", "ee\n")
    files.write("b.log", "new\n")
    files.write("b.txt", "not asked for\n")
    files.write("b.log.gz", "packed\n")
    files.caught_up(capturing)
    assert files.lines("a.log") == ["one", "two", "three"]
    assert files.lines("b.log") == ["new"]
    assert [row["offset"] for row in files.rows() if row["file"].endswith("a.log")] == [0, 4, 10]
    status = capturing.capture.status()
    assert (status.phase, status.rows, status.position) == ("reading", 4, "4 lines of 2 files")


def test_a_next_run_goes_on_behind_what_is_appended(files: Tailing) -> None:
    files.write("a.log", "one\ntwo\nthr")
    files.caught_up(files.tail())
    files.stop()
    files.write("a.log", "ee\nfour\n")
    files.caught_up(files.tail())
    assert files.lines() == ["one", "two", "three", "four"]


def test_rotation_by_rename_also_while_lines_still_go_to_the_old_file(files: Tailing) -> None:
    files.write("a.log", "1\n2\n")
    capturing = files.tail("a.log")
    files.caught_up(capturing)
    with (files.folder / "a.log").open("ab") as writer:  # as a program that has not noticed yet
        (files.folder / "a.log").rename(files.folder / "a.log.1")
        writer.write(b"3\n")
        writer.flush()
        files.until(lambda: len(files.lines()) == 3)
        files.write("a.log", "5\n")
        files.caught_up(capturing)
        writer.write(b"4\n")
    files.until(lambda: len(files.lines()) == 5)
    assert files.lines() == ["1", "2", "3", "5", "4"]


def test_rotation_by_rename_while_nobody_reads_is_found_by_inode(files: Tailing) -> None:
    files.write("a.log", "1\n2\n")
    files.caught_up(files.tail("a.log"))
    files.stop()
    files.write("a.log", "3\n")
    (files.folder / "a.log").rename(files.folder / "a.log-2026")
    files.write("a.log", "4\n")
    files.caught_up(files.tail("a.log"))
    files.until(lambda: files.lines() == ["1", "2", "3", "4"])


def test_several_rotations_while_nobody_reads_are_read_if_the_pattern_names_them(files: Tailing) -> None:
    files.write("a.log", "1\n")
    files.caught_up(files.tail("a.log*"))
    files.stop()
    for number in range(2, 6):
        for old in range(number, 0, -1):
            if (files.folder / f"a.log.{old}").exists():
                (files.folder / f"a.log.{old}").rename(files.folder / f"a.log.{old + 1}")
        (files.folder / "a.log").rename(files.folder / "a.log.1")
        files.write("a.log", f"{number}\n")
    files.caught_up(files.tail("a.log*"))
    assert sorted(files.lines()) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("after", ["new\n", "new and much longer than before\nmore\n"])
def test_rotation_by_truncation(files: Tailing, stopped: bool, after: str) -> None:
    files.write("a.log", "old 1\nold 2\n")
    capturing = files.tail("a.log")
    files.caught_up(capturing)
    if stopped:
        files.stop()
    shutil.copy(files.folder / "a.log", files.folder / "a.log.1")
    os.truncate(files.folder / "a.log", 0)
    files.write("a.log", after)
    if stopped:
        capturing = files.tail("a.log")
    files.until(
        lambda: files.lines() == ["old 1", "old 2", *after.split()] or len(files.lines()) == 2 + after.count("\n")
    )
    assert files.lines() == ["old 1", "old 2", *after.splitlines()]
    assert capturing.capture.status().lost == 0


def test_what_is_cut_before_its_end_was_written_is_counted(files: Tailing) -> None:
    files.write("a.log", "1\nunfinis")
    capturing = files.tail("a.log")
    files.caught_up(capturing)
    os.truncate(files.folder / "a.log", 0)
    files.write("a.log", "2\n")
    files.until(lambda: files.lines() == ["1", "2"])
    assert capturing.capture.status().lost == 1


def test_a_new_file_with_the_inode_of_an_old_one_is_read_from_its_beginning(files: Tailing) -> None:
    files.write("a.log", "aaa\nbbb\n")
    files.caught_up(files.tail("a.log"))
    files.stop()
    (files.folder / "a.log").write_text("ccc\nddd\n")  # the same inode, the same size
    files.caught_up(files.tail("a.log"))
    files.until(lambda: files.lines() == ["aaa", "bbb", "ccc", "ddd"])


def test_a_file_that_was_deleted_is_read_to_its_end_and_then_forgotten(
    files: Tailing, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a.log", "1\n")
    capturing = files.tail()
    files.caught_up(capturing)
    with (files.folder / "a.log").open("ab") as writer:
        (files.folder / "a.log").unlink()
        writer.write(b"2\n")
    files.until(lambda: files.lines() == ["1", "2"])
    monkeypatch.setattr(watching, "IDLE_S", 0.0)
    files.until(lambda: capturing.capture.status().position.endswith("of 0 files"))


def test_files_may_begin_at_their_end_at_the_first_run_only(files: Tailing) -> None:
    files.write("a.log", "old\nunfin")
    files.caught_up(files.tail(start="end"))
    files.write("a.log", "ished\nnew\n")
    files.write("b.log", "whole\n")
    files.until(lambda: sorted(files.lines()) == ["new", "whole"])
    files.stop()
    files.write("c.log", "later\n")
    files.caught_up(files.tail(start="end"))
    assert sorted(files.lines()) == ["later", "new", "whole"]


# --- JSON lines, and lines that do not fit ---

CLICKS = {"user": "int64", "page": "string", "offset": "int64"}


def clicks(log: hw.Log, **settings: Any) -> hw.Topic:
    spec = TopicSpec("clicks", schema_of(CLICKS), key=("user",), partitions=1, settings=Settings(**settings))
    return hw.Topic(log, log.create(spec))


BAD = [
    (b'{"user": 1}\n', None),
    (b"{not\n", "it is not JSON"),
    (b'{"user": "x"}\n', "column 'user': 'x' is not int64"),
    (b'{"user": 2, "page": "/"}\n', None),
    (b"[1]\n", "it is a list, not an object"),
    (b'{"user": 3, "other": 1}\n', "column 'other': no such column"),
    (b'{"page": "/"}\n', "column 'user': null or missing"),
    (b'{"user": \xff}\n', "it is not UTF-8"),
    (b'{"user": 4, "page": "' + b"x" * 2000 + b'"}\n', "it has more than 1000 bytes"),
    (b'{"user": 5}\n', None),
]


def test_bad_lines_go_to_dead_letters_and_the_others_are_typed(files: Tailing) -> None:
    files.write("a.log", b"".join(line for line, _ in BAD))
    capturing = files.tail(into=clicks(files.log), lines="json", bad_lines="dead", line_bytes=1000)
    files.caught_up(capturing)
    starts = [sum(len(line) for line, _ in BAD[:place]) for place in range(len(BAD))]
    fit = [(row["user"], row["page"], row["offset"]) for row in files.rows("clicks")]
    assert fit == [(1, None, starts[0]), (2, "/", starts[3]), (5, None, starts[9])]
    dead = files.rows("clicks.dead")
    assert [row["offset"] for row in dead] == [starts[place] for place, (_, why) in enumerate(BAD) if why]
    for row, why in zip(dead, [why for _, why in BAD if why], strict=True):
        assert why in row["error"]
    assert dead[0]["line"] == "{not"
    assert "\\xff" in dead[5]["line"]
    status = capturing.capture.status()
    assert (status.bad, status.rows) == (7, 10)
    assert "it has more than 1000 bytes" in status.alert


def test_a_bad_line_stops_the_capture_at_it_and_mended_it_goes_on(files: Tailing) -> None:
    files.write("a.log", b'{"user": 1}\n{"user": x}\n{"user": 3}\n')
    topic = clicks(files.log)
    for _ in range(2):
        capturing = files.tail(into=topic, lines="json")
        files.until(lambda capturing=capturing: capturing.failure is not None)
        assert isinstance(capturing.failure, BadLine)
        assert capturing.failure.offset == 12
        assert "the line at byte 12: it is not JSON" in str(capturing.failure)
        assert [row["user"] for row in files.rows("clicks")] == [1]
    text = (files.folder / "a.log").read_bytes()
    with (files.folder / "a.log").open("r+b") as file:
        file.write(text.replace(b"x", b"2"))
    files.caught_up(files.tail(into=topic, lines="json"))
    assert [row["user"] for row in files.rows("clicks")] == [1, 2, 3]


def test_a_line_longer_than_what_is_read_at_once_is_one_bad_line(files: Tailing) -> None:
    capturing = files.tail(bad_lines="dead", line_bytes=100)
    for _ in range(30):
        files.write("a.log", b"x" * 100_000)
    files.until(lambda: capturing.capture.status().bad == 1)
    files.write("a.log", "the end\nnext\n")
    files.caught_up(capturing)
    assert files.lines() == ["next"]
    assert [row["error"] for row in files.rows("lines.dead")] == ["it has more than 100 bytes"]


# --- when we are slow ---


def test_a_full_topic_blocks_and_the_file_is_the_buffer(files: Tailing) -> None:
    topic = clicks(files.log, most_rows=2, when_full="block")
    files.write("a.log", '{"user": 1}\n{"user": 2}\n')
    capturing = files.tail(into=topic, lines="json")
    files.caught_up(capturing)
    files.write("a.log", '{"user": 3}\n{"user": 4}\n')
    files.until(lambda: "clicks" in capturing.capture.status().waiting)
    status = capturing.capture.status()
    assert (status.when_slow, status.lag_bytes, status.dropped) == ("block", 24, 0)
    topic.alter(settings=Settings(most_rows=100, when_full="block"))
    files.caught_up(capturing)
    assert [row["user"] for row in files.rows("clicks")] == [1, 2, 3, 4]


def test_too_far_behind_the_oldest_lines_are_dropped_and_counted(files: Tailing) -> None:
    files.write("a.log", "".join(f"{number:09d}\n" for number in range(1000)))
    capturing = files.tail(when_slow="drop_oldest", buffer_bytes=1005)
    files.caught_up(capturing)
    assert files.lines() == [f"{number:09d}" for number in range(900, 1000)]
    assert capturing.capture.status().dropped == 900
    files.write("a.log", "more\n")
    files.caught_up(capturing)
    assert len(files.lines()) == 101


def test_what_the_topic_dropped_is_counted(files: Tailing) -> None:
    topic = clicks(files.log, most_rows=3, when_full="drop_newest")
    files.write("a.log", '{"user": 1}\n{"user": 2}\n')
    capturing = files.tail(into=topic, lines="json")
    files.caught_up(capturing)
    files.write("a.log", '{"user": 3}\n{"user": 4}\n')
    files.caught_up(capturing)
    assert capturing.capture.status().dropped == 2


def test_a_file_that_may_not_be_read_is_told_and_the_others_go_on(
    files: Tailing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watching.opened

    def refuse(path: str) -> tuple[int, str] | None:
        if path.endswith("b.log"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(watching, "opened", refuse)  # tests may run as root, who may read everything
    files.write("a.log", "1\n")
    files.write("b.log", "2\n")
    capturing = files.tail()
    files.until(lambda: files.lines() == ["1"])
    files.until(lambda: capturing.capture.status().alert.endswith("b.log: Permission denied"))


def test_what_cannot_be_declared(files: Tailing) -> None:
    with pytest.raises(BadCapture, match="newest lines are not dropped"):
        TailSettings(when_slow="drop_newest")
    with pytest.raises(BadCapture, match="lines is 'csv'. Use text or json"):
        TailSettings(lines="csv")  # type: ignore[arg-type]
    with pytest.raises(BadCapture, match="which columns do the JSON lines"):
        files.tail(lines="json")
    with pytest.raises(BadCapture, match="has no column 'line'"):
        files.tail(into=clicks(files.log))
    with pytest.raises(BadCapture, match="names no files"):
        TailCapture(FeedSpec("x", "tail:", "lines", TailSettings()), files.log)


def test_an_app_tails_until_it_has_caught_up(files: Tailing) -> None:
    files.write("a.ndjson", "\n".join(json.dumps({"user": number, "page": "/"}) for number in range(50)) + "\n")
    with hw.App("shop", log=files.log.url) as app:
        topic = app.topic("clicks", CLICKS, key="user")
        settings = hw.TailSettings(lines="json", bad_lines="dead")
        captured = app.capture(f"tail:{files.folder}/*.ndjson", into=topic, settings=settings)
        assert sorted(captured) == ["clicks", "clicks.dead"]
        for more in (50, 51):
            app.run(only="captures", until="caught-up")
            assert topic.read().num_rows == more
            files.write("a.ndjson", '{"user": 99}\n')


def test_the_command_shows_what_became_of_the_lines(files: Tailing) -> None:
    files.write("a.log", b"".join(line for line, _ in BAD))
    files.caught_up(files.tail(into=clicks(files.log), lines="json", bad_lines="dead", line_bytes=1000))
    (told,) = json.loads(CliRunner().invoke(cli, ["capture", "status", "--log", files.log.url, "--json"]).output)
    assert told["from"] == f"tail:{files.folder}/*.log"
    counted = [told[name] for name in ("capture", "when_slow", "lines", "bad", "dropped", "lost")]
    assert counted == ["files", "block", 3, 7, 0, 0]
    assert "it has more than 1000 bytes" in told["last_bad"]
    shown = CliRunner().invoke(cli, ["capture", "status", "--log", files.log.url]).output
    assert "when_slow" in shown
    assert "slot" not in shown
    refused = CliRunner().invoke(cli, ["capture", "resnapshot", "files", "--all", "--log", files.log.url])
    assert "has no tables to compare" in str(refused.exception)
