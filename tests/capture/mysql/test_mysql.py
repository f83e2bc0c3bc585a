"""Snapshot and stream of a real MariaDB: what the tables hold is what their topics replay to."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.capture.mysql.binlog import Server
from headwater.capture.state import ask
from tests.capture.mysql.conftest import Database
from tests.capture.mysql.replay import assert_same
from tests.capture.replay import replayed

pytestmark = pytest.mark.slow

USERS = "CREATE TABLE users (id int PRIMARY KEY, name varchar(100), score double, at datetime(6) DEFAULT now(6))"
ORDERS = (
    "CREATE TABLE orders (id bigint, part varchar(10), user_id int, total decimal(12,2), PRIMARY KEY (id, part),"
    " doubled decimal(13,2) GENERATED ALWAYS AS (total * 2) VIRTUAL)"
)


@pytest.fixture
def shop(database: Database) -> Database:
    database.run(USERS, ORDERS)
    database.run("INSERT INTO users (id, name, score) SELECT seq, concat('user ', seq), seq / 3 FROM seq_1_to_500")
    database.run("INSERT INTO orders (id, part, user_id, total) SELECT seq, 'p', seq % 50, seq FROM seq_1_to_700")
    return database


def test_a_snapshot_then_every_kind_of_change(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")
    assert shop.log.topic("users").weighted
    assert shop.log.topic("orders").key == ("id", "part")
    assert "doubled" not in shop.log.topic("orders").schema.names
    shop.run(
        "INSERT INTO users VALUES (1000, NULL, -1.5e300, NULL), (1001, 'tab\\tline\\nback\\\\slash \\0 ünï', 0, NULL)",
        "UPDATE users SET name = 'changed' WHERE id < 10",
        "DELETE FROM orders WHERE id % 7 = 0",
        "UPDATE orders SET total = total + 1 WHERE id < 100",
        "UPDATE users SET id = id + 5000 WHERE id BETWEEN 20 AND 25",
        "UPDATE orders SET id = -id, part = 'q' WHERE id BETWEEN 30 AND 35",
        "REPLACE INTO users VALUES (1, 'replaced', 1, now(6)), (2000, 'new', 1, now(6))",
        "INSERT INTO users (id, name) VALUES (2, 'x') ON DUPLICATE KEY UPDATE name = 'duplicate'",
        "DELETE FROM users WHERE id = 1000",
    )
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")


def test_what_is_rolled_back_is_never_seen(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    before = hw.Topic(shop.log, shop.log.topic("users")).read().num_rows
    shop.run("BEGIN", "UPDATE users SET name = 'no'", "ROLLBACK")
    shop.run(
        "BEGIN", "INSERT INTO users (id) VALUES (2000)", "SAVEPOINT s", "DELETE FROM users", "ROLLBACK TO s", "COMMIT"
    )
    shop.caught_up(capturing)
    assert hw.Topic(shop.log, shop.log.topic("users")).read().num_rows == before + 1
    assert_same(shop.log, shop.url, "users", "orders")


def test_truncate_takes_every_row_away(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    shop.run(
        "INSERT INTO users (id) VALUES (3000)",
        f"/* all */ truncate `{shop.name}`.users",
        "INSERT INTO users (id) VALUES (3001)",
        "TRUNCATE TABLE orders",
    )
    shop.caught_up(capturing)
    assert [row[0] for row in replayed(shop.log, "users")] == [3001]
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_transaction_over_two_tables_is_one_append(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    newest = shop.log.snapshot(["users"]).number
    shop.run(
        "BEGIN", "INSERT INTO users (id) VALUES (4000)", "INSERT INTO orders (id, part) VALUES (4000, 'a')", "COMMIT"
    )
    shop.caught_up(capturing)
    numbers = [
        number
        for number in range(newest + 1, shop.log.snapshot(["users"]).number + 1)
        for topic in ("users", "orders")
        if sum(shop.log.position_at(topic, number).values()) > sum(shop.log.position_at(topic, number - 1).values())
    ]
    assert len(numbers) == 2
    assert numbers[0] == numbers[1]


def test_a_stop_in_between_and_a_new_file_of_the_binlog(shop: Database) -> None:
    first = shop.capture(["users", "orders"], heartbeat_s=0.01)
    shop.caught_up(first)
    for number in range(3):
        shop.run(f"INSERT INTO users (id) VALUES ({10000 + number})", "FLUSH BINARY LOGS")
        shop.caught_up(first)
    shop.run("INSERT INTO users (id) VALUES (10010)")
    shop.caught_up(first)
    first.stop()
    shop.run("FLUSH BINARY LOGS", "INSERT INTO users (id) SELECT seq FROM seq_20000_to_23000", "DELETE FROM orders")
    shop.caught_up(shop.capture(["users", "orders"]))
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_transaction_larger_than_a_round_is_one_append(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.capture.mysql.changes.ROUND_BYTES", 20_000)
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    covered = shop.log.covered(f"capture.{shop.name}")
    assert covered is not None
    shop.run(
        "BEGIN",
        "INSERT INTO users (id, name) SELECT seq, repeat('many ', 15) FROM seq_10000_to_20000",
        "UPDATE orders SET total = total * 2",
        "DELETE FROM users WHERE id < 300",
        "COMMIT",
    )
    shop.caught_up(capturing)
    after = shop.log.covered(f"capture.{shop.name}")
    assert after is not None
    assert after.sequence == covered.sequence + 1
    assert_same(shop.log, shop.url, "users", "orders")


def test_ranges_are_read_while_rows_change(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker's snapshot is of another moment: what changes in between is told once."""
    from headwater.capture.mysql import snapshot

    monkeypatch.setattr("headwater.capture.mysql.snapshot.RANGE_ROWS", 60)
    opened = snapshot.open_snapshots

    def open_while_changing(url: str, server: object, count: int) -> list[tuple[object, int]]:
        found: list[tuple[object, int]] = []
        for number in range(count):
            shop.run(
                f"UPDATE users SET score = {number} WHERE id % 3 = 0",
                f"UPDATE users SET id = id + 10000 WHERE id BETWEEN {number * 100} AND {number * 100 + 5}",
                f"DELETE FROM users WHERE id % 97 = {number}",
            )
            found += opened(url, server, 1)  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(snapshot, "open_snapshots", open_while_changing)
    capturing = shop.capture(["users", "orders"])
    shop.until(lambda: capturing.capture.status().phase == "streaming", what="the end of the snapshot")
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")
    assert len(capturing.capture._standing.appender.state.get("pieces")) > 8  # type: ignore[attr-defined]
    shop.run("UPDATE users SET name = 'later'")
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_resnapshot_mends_a_topic_while_the_stream_goes_on(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.capture.mysql.snapshot.RANGE_ROWS", 100)
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    users = hw.Topic(shop.log, shop.log.topic("users"))
    users.append([{"id": 7777, "name": "never there"}])
    lost = next(row for row in users.read().to_pylist() if row["id"] == 7)
    users.append([{**{name: lost[name] for name in users.spec.schema.names}, "_weight": -1}])
    with pytest.raises(AssertionError, match="500 rows, captured 500; missing="):
        assert_same(shop.log, shop.url, "users")
    ask(shop.log, shop.name, ["users"])
    for number in range(20):
        shop.run(f"UPDATE users SET score = {number} WHERE id > 10 AND id % 11 = {number % 11}")
    shop.until(lambda: 7777 not in [row[0] for row in replayed(shop.log, "users")], what="the mended row")
    shop.run("DELETE FROM users WHERE id = 9")
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")


def test_files_of_the_binlog_with_and_without_checksums(shop: Database) -> None:
    shop.run("CREATE TABLE sizes (id int PRIMARY KEY, size enum('s', 'm'))", "SET GLOBAL binlog_checksum = 'NONE'")
    try:
        first = shop.capture(["users", "sizes"])
        shop.caught_up(first)
        shop.run("INSERT INTO sizes VALUES (1, 's'), (2, 'm')", "UPDATE users SET name = 'no checksum' WHERE id < 50")
        shop.caught_up(first)
        first.stop()
        shop.run(
            "DELETE FROM users WHERE id < 20", "SET GLOBAL binlog_checksum = 'CRC32'", "UPDATE sizes SET size = 's'"
        )
        second = shop.capture(["users", "sizes"])
        shop.caught_up(second)
        shop.run("SET GLOBAL binlog_checksum = 'NONE'", "DELETE FROM users WHERE id < 30")
        shop.caught_up(second)
    finally:
        shop.run("SET GLOBAL binlog_checksum = 'CRC32'")
    shop.run("DELETE FROM users WHERE id < 40")
    shop.caught_up(second)
    assert_same(shop.log, shop.url, "users", "sizes")


def test_a_snapshot_under_a_lock_as_mysql_needs_it(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB understands the statements too."""
    monkeypatch.setattr("headwater.capture.mysql.snapshot.RANGE_ROWS", 100)
    monkeypatch.setattr(Server, "of", lambda connection: Server(maria=False, version=(8, 0, 36), identity="a uuid"))
    capturing = shop.capture(["users", "orders"])
    for number in range(20):
        shop.run(f"UPDATE users SET score = {number} WHERE id % 11 = {number % 11}")
    shop.caught_up(capturing)
    ask(shop.log, shop.name, ["users"])
    shop.run("DELETE FROM users WHERE id > 400")
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_table_by_pattern_and_one_of_another_database(shop: Database) -> None:
    shop.run(f"CREATE DATABASE {shop.name}_more", f"CREATE TABLE {shop.name}_more.extra (id int PRIMARY KEY)")
    shop.run(f"INSERT INTO {shop.name}_more.extra VALUES (1), (2)")
    other = f"{shop.name}_more.extra"
    capturing = shop.capture({"o*": "o*", other: "extra"})
    shop.caught_up(capturing)
    shop.run(f"DELETE FROM {other} WHERE id = 1", "DELETE FROM orders WHERE id > 5", "DELETE FROM users")
    shop.caught_up(capturing)
    assert replayed(shop.log, "extra") == [(2,)]
    assert_same(shop.log, shop.url, "orders")
    capturing.stop()
    shop.run(f"DROP DATABASE {shop.name}_more")


def test_an_outbox_is_routed_also_when_its_rows_are_deleted_at_once(shop: Database) -> None:
    shop.run(
        "CREATE TABLE outbox (id char(36) PRIMARY KEY, aggregatetype varchar(50), aggregateid varchar(50),"
        " type varchar(50), payload json)",
        "INSERT INTO outbox VALUES ('a', 'order', '1', 'made', '{}')",
    )
    capturing = shop.capture(["outbox"], outbox="outbox")
    shop.caught_up(capturing)
    shop.run("BEGIN", "INSERT INTO outbox VALUES ('b', 'order', '2', 'made', '{}')", "DELETE FROM outbox", "COMMIT")
    shop.caught_up(capturing)
    told = hw.Topic(shop.log, shop.log.topic("outbox.event.order")).read().to_pylist()
    assert sorted((row["id"], row["aggregateid"]) for row in told) == [("a", "1"), ("b", "2")]
    assert replayed(shop.log, "outbox") == []
