"""Snapshot and stream of a real PostgreSQL: what the tables hold is what their topics replay to."""

from __future__ import annotations

import pytest

import headwater as hw
from tests.capture.conftest import Database
from tests.capture.replay import assert_same, replayed

pytestmark = pytest.mark.postgres

USERS = "CREATE TABLE users (id int PRIMARY KEY, name text, score float8, at timestamptz DEFAULT now())"
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, user_id int, total numeric(12,2))"
FULL = "ALTER TABLE orders REPLICA IDENTITY FULL"


@pytest.fixture
def shop(database: Database) -> Database:
    """`users` is told by key, an upsert topic; `orders` in full, a weighted one."""
    database.run(USERS, ORDERS, FULL)
    database.run("INSERT INTO users SELECT g, 'user ' || g, g / 3.0 FROM generate_series(1, 500) g")
    database.run("INSERT INTO orders SELECT g, g % 50, g * 1.25 FROM generate_series(1, 700) g")
    return database


def test_a_snapshot_then_every_kind_of_change(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")
    assert shop.log.topic("users").upsert
    assert shop.log.topic("orders").weighted
    shop.run(
        "INSERT INTO users VALUES (1000, NULL, 'Infinity'), (1001, E'tab\\tline\\nback\\\\slash', 'NaN')",
        "UPDATE users SET name = 'changed' WHERE id < 10",
        "DELETE FROM orders WHERE id % 7 = 0",
        "UPDATE orders SET total = total + 1 WHERE id < 100",
        "UPDATE users SET id = id + 5000 WHERE id BETWEEN 20 AND 25",
        "UPDATE orders SET id = -id WHERE id BETWEEN 30 AND 35",
        "DELETE FROM users WHERE id = 1000",
    )
    shop.caught_up(capturing)
    assert_same(shop.log, shop.url, "users", "orders")


def test_what_is_rolled_back_is_never_seen(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    before = hw.Topic(shop.log, shop.log.topic("users")).read().num_rows
    shop.run(
        "BEGIN; UPDATE users SET name = 'no'; ROLLBACK",
        "BEGIN; INSERT INTO users VALUES (2000, 'yes'); SAVEPOINT s; DELETE FROM users; ROLLBACK TO s; COMMIT",
    )
    shop.caught_up(capturing)
    assert hw.Topic(shop.log, shop.log.topic("users")).read().num_rows == before + 1
    assert_same(shop.log, shop.url, "users", "orders")


def test_truncate_takes_every_row_away_also_amid_a_transaction(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    shop.run(
        "BEGIN; INSERT INTO users VALUES (3000, 'gone'); DELETE FROM orders WHERE id = 1; TRUNCATE users, orders;"
        " INSERT INTO users VALUES (3001, 'stays'); INSERT INTO orders VALUES (3, 3, 3); COMMIT",
        "INSERT INTO users VALUES (3002, 'stays')",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (4, 4, 4)",
    )
    shop.caught_up(capturing)
    assert [row[0] for row in replayed(shop.log, "users")] == [3001, 3002]
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_transaction_over_two_tables_is_one_append(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    newest = shop.log.snapshot(["users"]).number
    shop.run("BEGIN; INSERT INTO users VALUES (4000, 'a'); INSERT INTO orders VALUES (4000, 4000, 1); COMMIT")
    shop.caught_up(capturing)
    numbers = [
        number
        for number in range(newest + 1, shop.log.snapshot(["users"]).number + 1)
        for topic in ("users", "orders")
        if sum(shop.log.position_at(topic, number).values()) > sum(shop.log.position_at(topic, number - 1).values())
    ]
    assert len(numbers) == 2
    assert numbers[0] == numbers[1]


def test_copy_and_a_stop_in_between(shop: Database) -> None:
    first = shop.capture(["users", "orders"])
    shop.caught_up(first)
    first.stop()
    with shop.connection.cursor().copy("COPY users (id, name) FROM STDIN") as copy:
        for number in range(10_000, 13_000):
            copy.write_row((number, f"copied {number}"))
    second = shop.capture(["users", "orders"])
    shop.caught_up(second)
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_transaction_larger_than_a_round_is_one_append(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.capture.postgres.stream.ROUND_BYTES", 20_000)
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    covered = shop.log.covered(f"capture.{shop.name}")
    assert covered is not None
    shop.run(
        "BEGIN; INSERT INTO users SELECT g, 'many' FROM generate_series(10000, 20000) g;"
        " INSERT INTO orders SELECT g, g, g FROM generate_series(10000, 15000) g;"
        " TRUNCATE orders; INSERT INTO orders VALUES (1, 1, 1); COMMIT"
    )
    shop.caught_up(capturing)
    after = shop.log.covered(f"capture.{shop.name}")
    assert after is not None
    assert after.sequence == covered.sequence + 1
    assert_same(shop.log, shop.url, "users", "orders")


def test_a_connection_that_only_libpq_can_read_gives_the_same(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with TLS, which the server of these tests was built without."""
    monkeypatch.setattr("headwater.capture.postgres.wire.readable_past", lambda handle: False)
    monkeypatch.setattr("headwater.capture.postgres.copying.readable_past", lambda handle: False)
    capturing = shop.capture(["users", "orders"], heartbeat_s=0.2)
    shop.caught_up(capturing)
    shop.run("UPDATE users SET name = 'x' WHERE id < 100", "DELETE FROM orders WHERE id < 100")
    shop.caught_up(capturing)
    capturing.stop()
    shop.run("TRUNCATE orders", "INSERT INTO orders SELECT g, g, g FROM generate_series(1, 3000) g")
    shop.caught_up(shop.capture(["users", "orders"]))
    assert_same(shop.log, shop.url, "users", "orders")


def test_the_replay_notices_a_row_that_is_missing_and_one_too_many(shop: Database) -> None:
    capturing = shop.capture(["users", "orders"])
    shop.caught_up(capturing)
    topic = hw.Topic(shop.log, shop.log.topic("users"))
    topic.delete([{"id": 7}])
    with pytest.raises(AssertionError, match="500 rows, captured 499"):
        assert_same(shop.log, shop.url, "users")
    orders = hw.Topic(shop.log, shop.log.topic("orders"))
    orders.append([{"id": 9999, "user_id": 1, "total": "1.00"}])
    with pytest.raises(AssertionError, match="700 rows, captured 701"):
        assert_same(shop.log, shop.url, "orders")
