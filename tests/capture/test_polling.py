"""Polling by a column that grows: what it sees is in the topic once, and what it cannot see is what the docs say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater as hw
from headwater.capture.runner import Capturing
from headwater.capture.sources import capture_of
from headwater.capture.spec import CaptureSettings, CaptureSpec
from headwater.capture.state import State
from headwater.errors import SourceRefused
from tests.capture.conftest import Database
from tests.capture.database import caught_up
from tests.capture.replay import assert_same, replayed

EVERY_S = 0.05


class Polling:
    def __init__(self, log: hw.Log, until: Callable[..., None]) -> None:
        self.log, self.until = log, until
        self.running: list[Capturing] = []

    def start(self, url: str, table: str, column: str, **settings: Any) -> Capturing:
        chosen = CaptureSettings(poll=column, every_s=EVERY_S, **settings)
        capture = capture_of(CaptureSpec("poll", url, {table: table}, chosen), self.log)
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        self.running.append(capturing)
        capturing.start()
        return capturing

    def caught_up(self, capturing: Capturing) -> None:
        caught_up(capturing, self.until)


@pytest.fixture
def polling(log: hw.Log, until: Callable[..., None]) -> Iterator[Polling]:
    made = Polling(log, until)
    yield made
    for capturing in made.running:
        capturing.stop()


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "notes.db", isolation_level=None)
    connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, changed)")
    yield connection
    connection.close()


def in_sqlite(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    rows = connection.execute("SELECT id, text, changed FROM notes").fetchall()
    return sorted(((row[0], row[1], str(row[2])) for row in rows), key=repr)


@pytest.mark.parametrize("stamp", ["2024-05-01 10:00:{:02d}", "2024-05-01T10:00:{:02d}.500", "{:d}"])
def test_rows_of_sqlite_come_once_and_late_ones_within_the_overlap(
    polling: Polling, notes: sqlite3.Connection, tmp_path: Path, stamp: str
) -> None:
    def at(second: int) -> Any:
        text = stamp.format(second)
        return int(text) if text.isdigit() else text

    notes.executemany("INSERT INTO notes VALUES (?, ?, ?)", [(n, f"t{n}", at(20 + n)) for n in range(1, 6)])
    capturing = polling.start(f"sqlite:{tmp_path / 'notes.db'}", "notes", "changed", overlap=10)
    polling.caught_up(capturing)
    assert replayed(polling.log, "notes") == in_sqlite(notes)
    notes.execute("UPDATE notes SET text = 'new', changed = ? WHERE id = 2", (at(30),))
    notes.execute("INSERT INTO notes VALUES (9, 'late', ?)", (at(21),))  # committed now, stamped before the newest
    polling.caught_up(capturing)
    assert replayed(polling.log, "notes") == in_sqlite(notes)
    capturing.stop()
    notes.execute("INSERT INTO notes VALUES (10, 'meanwhile', ?)", (at(31),))
    again = polling.start(f"sqlite:{tmp_path / 'notes.db'}", "notes", "changed", overlap=10)
    polling.caught_up(again)
    assert replayed(polling.log, "notes") == in_sqlite(notes)
    records = hw.Topic(polling.log, polling.log.topic("notes")).read().num_rows
    assert records == 5 + 2 + 1, "nothing is told twice, though it is looked at again and again"
    state = State(polling.log, "poll")
    state.load()
    assert state.get("marks") == {"notes": ["changed", at(31)]}


def test_what_polling_cannot_see(polling: Polling, notes: sqlite3.Connection, tmp_path: Path) -> None:
    notes.executemany("INSERT INTO notes VALUES (?, ?, ?)", [(1, "a", 100), (2, "b", 101), (3, "c", None)])
    capturing = polling.start(f"sqlite:{tmp_path / 'notes.db'}", "notes", "changed", overlap=5)
    polling.caught_up(capturing)
    notes.execute("DELETE FROM notes WHERE id = 1")
    notes.execute("INSERT INTO notes VALUES (4, 'too late', 50)")
    notes.execute("UPDATE notes SET text = 'between' , changed = 102 WHERE id = 2")
    notes.execute("UPDATE notes SET text = 'newest', changed = 103 WHERE id = 2")
    polling.caught_up(capturing)
    assert [row[:2] for row in replayed(polling.log, "notes")] == [(1, "a"), (2, "newest")]


def test_a_table_without_such_a_column_is_refused(polling: Polling, notes: sqlite3.Connection, tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match="no column 'updated_at' to poll by"):
        polling.start(f"sqlite:{tmp_path / 'notes.db'}", "notes", "updated_at")


@pytest.mark.postgres
def test_rows_of_postgresql_come_once_and_late_ones_within_the_overlap(polling: Polling, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, n numeric(12,2), doc text,"
        " updated_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        "INSERT INTO orders SELECT g, g, '{\"a\": 1}' FROM generate_series(1, 500) g",
    )
    capturing = polling.start(database.url, "orders", "updated_at", overlap=30)
    polling.caught_up(capturing)
    assert_same(polling.log, database.url, "orders")
    with psycopg.connect(database.url) as slow:  # stamped before others are committed, committed after
        slow.execute("UPDATE orders SET n = -1, updated_at = clock_timestamp() WHERE id = 7")
        database.run("UPDATE orders SET n = n + 1, updated_at = clock_timestamp() WHERE id % 50 = 0")
        polling.caught_up(capturing)
    database.run("INSERT INTO orders VALUES (1000, 1, NULL)")
    polling.caught_up(capturing)
    assert_same(polling.log, database.url, "orders")
    assert hw.Topic(polling.log, polling.log.topic("orders")).read().num_rows == 500 + 10 + 1 + 1
    with pytest.raises(SourceRefused, match=r"ALTER TABLE .* ADD COLUMN"):
        polling.start(database.url, "orders", "doc")


@pytest.mark.postgres
def test_a_whole_number_that_grows_and_weights_where_old_rows_are_wanted(polling: Polling, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, version bigint, day date)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 1, '2024-01-01'), (2, 2, '2024-01-02')",
    )
    capturing = polling.start(database.url, "orders", "version", overlap=0)
    polling.caught_up(capturing)
    database.run("UPDATE orders SET version = 3 WHERE id = 1")
    polling.caught_up(capturing)
    assert polling.log.topic("orders").weighted
    assert_same(polling.log, database.url, "orders")
    capturing.stop()
    by_day = polling.start(database.url, "orders", "day", overlap=86_400)
    polling.caught_up(by_day)
