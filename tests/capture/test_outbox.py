"""The outbox: events in the order of commits, each once, in the topics that their rows name."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.capture.state import ask
from headwater.errors import BadCapture
from tests.capture.conftest import Database

pytestmark = pytest.mark.postgres

TABLE = """CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
  aggregateid text NOT NULL, type text NOT NULL, payload jsonb, tenant int)"""


def insert(aggregate: str, key: str, number: int) -> str:
    return (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, tenant) VALUES"
        f" ('00000000-0000-0000-0000-{number:012d}', '{aggregate}', '{key}', 'Made', '{{\"n\": {number}}}', 7)"
    )


def events(database: Database, aggregate: str) -> list[tuple[str, str]]:
    topic = hw.Topic(database.log, database.log.topic(f"outbox.event.{aggregate}"))
    return [(row["aggregateid"], row["payload"]) for row in topic.read().to_pylist()]


def test_rows_become_events_once_and_in_order_through_deletes_stops_and_a_comparison(database: Database) -> None:
    database.run(TABLE, insert("order", "a", 1), insert("customer", "c", 2))
    given = {"outbox": "outbox", "partitions": 1}
    capturing = database.capture(["outbox"], **given)
    database.caught_up(capturing)
    database.run(
        f"BEGIN; {insert('order', 'a', 3)}; {insert('order', 'b', 4)}; DELETE FROM outbox WHERE tenant = 7; COMMIT",
        insert("order", "a", 5),
        "UPDATE outbox SET payload = '{}'",
        f"BEGIN; {insert('order', 'never', 6)}; ROLLBACK",
        insert("order", "a", 3),  # the same id once more
    )
    database.caught_up(capturing)
    capturing.stop()
    database.run(insert("order", "b", 8))
    ask(database.log, database.name, ["outbox"])
    again = database.capture(["outbox"], **given)
    database.caught_up(again)
    database.run(insert("order", "b", 9))
    database.caught_up(again)
    assert events(database, "order") == [
        ("a", '{"n": 1}'),
        ("a", '{"n": 3}'),
        ("b", '{"n": 4}'),
        ("a", '{"n": 5}'),
        ("b", '{"n": 8}'),
        ("b", '{"n": 9}'),
    ]
    assert events(database, "customer") == [("c", '{"n": 2}')]
    spec = database.log.topic("outbox.event.order")
    assert spec.key == ("aggregateid",)
    assert spec.schema.names == ["id", "aggregateid", "type", "payload", "tenant"]


def test_a_table_that_is_no_outbox_is_refused(database: Database) -> None:
    database.run("CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text)")
    capturing = database.capture(["outbox"], outbox="outbox")
    database.until(lambda: capturing.failure is not None)
    assert isinstance(capturing.failure, BadCapture)
    assert "no column 'aggregateid'" in str(capturing.failure)
