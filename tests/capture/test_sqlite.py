"""Capture of a SQLite file by triggers: the topics replay to exactly the tables."""

from __future__ import annotations

import itertools
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSpec, topics_of
from headwater.capture.sqlite.capture import SqliteCapture
from headwater.errors import SchemaRefused, SourceRefused
from tests.capture.replay import canonical, replayed

TABLES = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, score REAL, done BOOLEAN, data BLOB);
CREATE TABLE "odd ""name" (a TEXT, b INTEGER, v VARCHAR(10), PRIMARY KEY (b, a)) WITHOUT ROWID;
INSERT INTO notes (text, score, done, data) VALUES ('one', 0.1, 1, x'00ff'), (NULL, NULL, NULL, NULL);
INSERT INTO notes (text, score, done, data) VALUES ('', 1e300, 0, x'');
INSERT INTO "odd ""name" VALUES ('a', 1, 'x'), ('b', 1, 'y');
"""
NAMES = {"notes": "notes", 'odd "name': "odd"}


class Notes:
    def __init__(self, path: Path, log: hw.Log, until: Callable[..., None]) -> None:
        self.path, self.log, self.until = path, log, until
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(TABLES)
        self.running: list[Capturing] = []

    def capture(self) -> Capturing:
        spec = CaptureSpec("notes", f"sqlite:{self.path}", topics_of(NAMES))
        capturing = Capturing(SqliteCapture(spec, self.log), lambda text: None)
        self.running.append(capturing)
        capturing.start()
        return capturing

    def caught_up(self, capturing: Capturing) -> None:
        def there() -> bool:
            if capturing.failure is not None:
                raise capturing.failure
            return capturing.capture.status().phase == "streaming" and capturing.capture.reached(
                capturing.capture.goal()
            )

        self.until(there, within_s=30, what="capture")

    def assert_same(self) -> None:
        for table, topic in NAMES.items():
            columns = self.log.topic(topic).schema
            names = ", ".join(f'"{name}"' for name in columns.names)
            quoted = table.replace('"', '""')
            there = self.connection.execute(f'SELECT {names} FROM "{quoted}"').fetchall()
            boolean = [str(kind) == "bool" for kind in columns.types]
            there = [
                tuple(bool(v) if b and v is not None else v for v, b in zip(row, boolean, strict=True)) for row in there
            ]
            assert replayed(self.log, topic) == sorted(canonical(there), key=repr)


@pytest.fixture
def notes(tmp_path: Path, log: hw.Log, until: Callable[..., None]) -> Iterator[Notes]:
    made = Notes(tmp_path / "notes.db", log, until)
    yield made
    for capturing in made.running:
        capturing.stop()
    made.connection.close()


def changes(chosen: random.Random, connection: sqlite3.Connection, steps: int) -> None:
    for _ in range(steps):
        connection.execute("BEGIN")
        for _ in range(chosen.randint(1, 6)):
            key, pick = chosen.randint(1, 60), chosen.random()
            if pick < 0.4:
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", (key, "t", pick, True, b"\0"))
            elif pick < 0.55:
                connection.execute("UPDATE notes SET text = text || 'x' WHERE id % 7 = ?", (key % 7,))
            elif pick < 0.65:
                connection.execute("UPDATE OR REPLACE notes SET id = ? WHERE id = ?", (key + 30, key))
            elif pick < 0.75:
                connection.execute("DELETE FROM notes WHERE id = ?", (key,))
            elif pick < 0.9:
                connection.execute(
                    """INSERT INTO "odd ""name" VALUES (?, ?, 'v') ON CONFLICT DO UPDATE SET v = v || 'w'""",
                    (str(key % 9), key % 5),
                )
            else:
                connection.execute("""DELETE FROM "odd ""name" WHERE b = ?""", (key % 5,))
        connection.execute("ROLLBACK" if chosen.random() < 0.15 else "COMMIT")


def test_what_was_there_and_every_change_after_it(notes: Notes) -> None:
    capturing = notes.capture()
    notes.caught_up(capturing)
    notes.assert_same()
    for seed in range(4):
        changes(random.Random(seed), notes.connection, 40)
        if seed == 2:
            capturing.stop()
            changes(random.Random(99), notes.connection, 20)
            capturing = notes.capture()
        notes.caught_up(capturing)
        notes.assert_same()
    left = notes.connection.execute("SELECT count(*) FROM _headwater_notes").fetchone()[0]
    notes.until(
        lambda: left == 0 or notes.connection.execute("SELECT count(*) FROM _headwater_notes").fetchone()[0] == 0
    )


def test_a_column_that_is_added_and_a_table_that_is_made_anew(notes: Notes) -> None:
    capturing = notes.capture()
    notes.caught_up(capturing)
    notes.connection.executescript("ALTER TABLE notes ADD COLUMN more TEXT; UPDATE notes SET more = 'm' WHERE id = 1")
    notes.until(lambda: "more" in notes.log.topic("notes").schema.names)
    notes.caught_up(capturing)
    notes.assert_same()
    notes.connection.executescript(
        'BEGIN; DROP TABLE "odd ""name";'
        'CREATE TABLE "odd ""name" (a TEXT, b INTEGER, v VARCHAR(10), PRIMARY KEY (b, a))'
        """; INSERT INTO "odd ""name" VALUES ('new', 9, 'z'); COMMIT"""
    )
    notes.until(lambda: len(replayed(notes.log, "odd")) == 1)
    notes.caught_up(capturing)
    notes.assert_same()


def test_a_column_that_is_added_while_changes_are_taken_is_not_overlooked(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right between the look at the schema and the end of the round in which it was looked at."""
    take, rounds = SqliteCapture._take, itertools.count()

    def taking(self: SqliteCapture, connection: sqlite3.Connection, *given: Any, **named: Any) -> None:
        if self.status().phase == "streaming" and next(rounds) == 1:
            with closing(sqlite3.connect(notes.path)) as other:
                other.executescript("ALTER TABLE notes ADD COLUMN more TEXT; UPDATE notes SET more = 'm' WHERE id = 1")
        take(self, connection, *given, **named)

    monkeypatch.setattr(SqliteCapture, "_take", taking)
    capturing = notes.capture()
    notes.caught_up(capturing)
    notes.connection.execute("UPDATE notes SET text = 'again' WHERE id = 1")
    notes.until(lambda: "more" in notes.log.topic("notes").schema.names)
    notes.caught_up(capturing)
    notes.assert_same()


def test_a_column_that_is_dropped_stops_it(notes: Notes) -> None:
    capturing = notes.capture()
    notes.caught_up(capturing)
    capturing.stop()
    notes.connection.executescript("DROP TRIGGER _headwater_insert_notes; DROP TRIGGER _headwater_update_notes;"
                                   "DROP TRIGGER _headwater_delete_notes; DROP TRIGGER _headwater_move_notes;"
                                   "ALTER TABLE notes DROP COLUMN score")  # fmt: skip
    again = notes.capture()
    notes.until(lambda: again.failure is not None)
    assert isinstance(again.failure, SchemaRefused)
    assert "score" in str(again.failure)


def test_no_file_no_table_no_key(notes: Notes, tmp_path: Path) -> None:
    def refused(url: str, table: str) -> str:
        with pytest.raises(SourceRefused) as error:
            SqliteCapture(CaptureSpec("c", url, {table: "t"}), notes.log).topics()
        return str(error.value)

    notes.connection.execute("CREATE TABLE bag (x)")
    assert "there is no such file" in refused(f"sqlite:{tmp_path / 'nothing.db'}", "notes")
    assert "there is no table 'nothing'" in refused(f"sqlite:{notes.path}", "nothing")
    assert "no primary key" in refused(f"sqlite:{notes.path}", "bag")


APP = """
import headwater as hw

app = hw.App("notes", log={log!r})
app.capture({url!r}, tables={names!r})
"""
CLI = "from headwater.cli.main import main; main()"


@pytest.mark.slow
def test_exact_through_kills(notes: Notes, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(APP.format(log=notes.log.url, url=f"sqlite:{notes.path}", names=NAMES))
    chosen = random.Random(5)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", CLI, "capture", "run", str(file)])
        for _ in range(chosen.randint(5, 60)):
            changes(chosen, notes.connection, 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", CLI, "capture", "run", str(file), "--caught-up"], check=True, timeout=60)
    notes.assert_same()
