"""The slot guard, and tables that are compared with their topics while the stream goes on."""

from __future__ import annotations

import threading

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.capture.postgres import snapshot
from headwater.cli.main import cli
from tests.capture.conftest import Database
from tests.capture.load import TABLES, Load
from tests.capture.replay import assert_same

pytestmark = pytest.mark.postgres


@pytest.fixture
def bank(database: Database) -> Database:
    database.run(*TABLES)
    return database


def test_a_snapshot_that_was_interrupted_goes_on_with_what_changed_meanwhile(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some ranges are of the slot's snapshot, the others of a later one: every change counts once."""
    monkeypatch.setattr("headwater.capture.postgres.ranges.RANGE_ROWS", 300)
    monkeypatch.setattr(snapshot, "WORKERS", 1)
    bank.run("ANALYZE")
    taken = snapshot.Snapshot._append

    def stop_after_three(self: snapshot.Snapshot, *given: object) -> None:
        taken(self, *given)  # type: ignore[arg-type]
        if self._appender._sequence >= 5:
            self._stopped.set()

    monkeypatch.setattr(snapshot.Snapshot, "_append", stop_after_three)
    first = bank.capture(["accounts", "branches"])
    first._thread.join(60)
    assert first.failure is None
    pieces = first.capture._standing.appender.state.get("pieces")  # type: ignore[attr-defined]
    assert 0 < sum(piece["done"] for piece in pieces) < len(pieces)
    monkeypatch.setattr(snapshot.Snapshot, "_append", taken)
    load = Load(bank.url, 3)
    for _ in range(60):
        load.step()
    bank.run("UPDATE accounts SET id = 3000 - id WHERE id BETWEEN 250 AND 350")
    second = bank.capture(["accounts", "branches"])
    for _ in range(20):
        load.step()
    load.close()
    bank.caught_up(second)
    assert_same(bank.log, bank.url, "accounts", "branches")
    bank.until(lambda: second.capture._standing.appender.state.get("overlaps") is None)  # type: ignore[attr-defined]


def test_a_truncate_before_the_later_snapshot_does_not_take_its_rows_away(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bank.capture(["accounts", "branches"])
    bank.caught_up(first)
    first.stop()
    bank.run("TRUNCATE branches", "INSERT INTO branches VALUES (1, 'p', 1, now())", "TRUNCATE accounts")
    CliRunner().invoke(
        cli, ["capture", "resnapshot", bank.name, "--all", "--log", bank.log.url], catch_exceptions=False
    )
    bank.run("INSERT INTO accounts VALUES (1, 1, 'one')")
    again = bank.capture(["accounts", "branches"])
    bank.caught_up(again)
    assert_same(bank.log, bank.url, "accounts", "branches")


def test_a_heartbeat_releases_wal_although_nothing_captured_changes(bank: Database) -> None:
    capturing = bank.capture(["accounts"], heartbeat_s=0.2)
    bank.caught_up(capturing)
    bank.run("CREATE TABLE noise (n int)", "INSERT INTO noise SELECT generate_series(1, 20000)")
    slot = f"headwater_{bank.name}"
    target = bank.rows("SELECT pg_current_wal_lsn()")[0][0]
    query = f"SELECT confirmed_flush_lsn >= '{target}' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    bank.until(lambda: bank.rows(query) == [(True,)], what="the slot to move on")
    capturing.stop()
    bank.caught_up(bank.capture(["accounts"]))
    assert_same(bank.log, bank.url, "accounts")


def test_past_its_budget_of_wal_there_is_an_alert(bank: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.capture.following.LOOK_S", 0.1)
    capturing = bank.capture(["accounts"], wal_budget_bytes=1000, heartbeat_s=3600.0)
    bank.caught_up(capturing)
    bank.run("CREATE TABLE noise (n int)", "INSERT INTO noise SELECT generate_series(1, 20000)")
    bank.until(lambda: "more than the budget" in capturing.capture.status().alert)
    assert capturing.failure is None


def test_past_its_budget_the_slot_is_dropped_if_told_to_and_nothing_is_lost(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.following.LOOK_S", 0.1)
    capturing = bank.capture(["accounts", "branches"], wal_budget_bytes=400_000, drop_slot=True, heartbeat_s=3600.0)
    bank.caught_up(capturing)
    begins = capturing.capture._standing.appender.state.get("source")["begins"]  # type: ignore[attr-defined]
    bank.run("CREATE TABLE noise (n int)", "INSERT INTO noise SELECT generate_series(1, 20000)")
    state = capturing.capture._standing.appender.state  # type: ignore[attr-defined]
    bank.until(lambda: state.get("source")["begins"] > begins, what="a new slot")
    bank.run("UPDATE accounts SET note = 'after' WHERE id < 50", "DELETE FROM branches WHERE id < 10")
    bank.caught_up(capturing)
    assert_same(bank.log, bank.url, "accounts", "branches")


def test_a_table_is_compared_with_its_topic_while_the_stream_goes_on(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drift is planted in both topics; it is gone after `resnapshot`, with load before, during and after."""
    monkeypatch.setattr("headwater.capture.postgres.ranges.RANGE_ROWS", 200)
    bank.run("ANALYZE")
    capturing = bank.capture(["accounts", "branches"])
    bank.caught_up(capturing)
    hw.Topic(bank.log, bank.log.topic("accounts")).delete([{"id": number} for number in range(100, 300)])
    hw.Topic(bank.log, bank.log.topic("accounts")).upsert([{"id": -5, "note": "never there"}])
    extra = hw.Topic(bank.log, bank.log.topic("branches"))
    extra.append([{"id": -7, "part": "x", "total": 1.0, "at": None}])
    with pytest.raises(AssertionError):
        assert_same(bank.log, bank.url, "accounts", "branches")
    over = threading.Event()

    def run_load() -> None:
        load = Load(bank.url, 11)
        for _ in range(400):
            if over.is_set():
                break
            load.step()
        load.close()

    thread = threading.Thread(target=run_load)
    thread.start()
    asked = ["capture", "resnapshot", bank.name, "accounts", "branches", "--log", bank.log.url]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    state = capturing.capture._standing.appender.state  # type: ignore[attr-defined]
    bank.until(lambda: state.get("comparing") or state.get("overlaps"), what="comparing to begin")
    bank.until(lambda: not state.get("comparing"), what="comparing to end")
    over.set()
    thread.join()
    bank.caught_up(capturing)
    assert_same(bank.log, bank.url, "accounts", "branches")


def test_a_table_that_is_added_later_is_read_while_the_others_stream(bank: Database) -> None:
    first = bank.capture(["accounts"])
    bank.caught_up(first)
    first.stop()
    bank.run("INSERT INTO accounts VALUES (-1, 1, 'meanwhile')", "DELETE FROM branches WHERE id < 5")
    second = bank.capture(["accounts", "branches"])
    bank.run("UPDATE branches SET total = 0 WHERE id < 20")
    bank.caught_up(second)
    bank.run("UPDATE branches SET total = 1 WHERE id < 30", "INSERT INTO accounts VALUES (-2, 2, 'then')")
    bank.caught_up(second)
    assert_same(bank.log, bank.url, "accounts", "branches")


def test_a_pattern_takes_what_is_there_at_each_start(database: Database) -> None:
    database.run("CREATE SCHEMA sales", "CREATE TABLE sales.a (id int PRIMARY KEY)", "INSERT INTO sales.a VALUES (1)")
    first = database.capture(["sales.*"])
    database.caught_up(first)
    first.stop()
    database.run("CREATE TABLE sales.b (id int PRIMARY KEY)", "INSERT INTO sales.b VALUES (2)")
    second = database.capture(["sales.*"])
    database.caught_up(second)
    assert_same(database.log, database.url, "sales.a", "sales.b")


def test_logical_messages_become_records(bank: Database) -> None:
    capturing = bank.capture(["accounts"])
    bank.caught_up(capturing)
    bank.run(
        "SELECT pg_logical_emit_message(true, 'audit', 'with a transaction')",
        "SELECT pg_logical_emit_message(false, 'audit', 'without one')",
        "BEGIN; SELECT pg_logical_emit_message(true, 'audit', 'never'); ROLLBACK",
    )
    bank.caught_up(capturing)
    topic = hw.Topic(bank.log, bank.log.topic(f"{bank.name}.messages"))
    bank.until(lambda: topic.read().num_rows >= 2, what="a message that no commit has flushed")
    capturing.stop()
    bank.run("INSERT INTO accounts VALUES (-1, 1, 'one more')")
    bank.caught_up(bank.capture(["accounts"]))
    rows = topic.read().to_pylist()
    assert [(row["prefix"], row["content"], row["transactional"]) for row in rows] == [
        ("audit", b"with a transaction", True),
        ("audit", b"without one", False),
    ]


def test_status_tells_how_far_it_is(bank: Database) -> None:
    bank.caught_up(bank.capture(["accounts"]))
    told = CliRunner().invoke(cli, ["capture", "status", "--log", bank.log.url, "--json"])
    assert f'"capture": "{bank.name}"' in told.output
    assert '"snapshot": "1 of 1 ranges"' in told.output
