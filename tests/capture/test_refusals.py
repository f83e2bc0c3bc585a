"""What stands in the way is refused before anything is read, with the statement that mends it. C5: no gap is silent."""

from __future__ import annotations

import psycopg
import pytest

import headwater as hw
from headwater.capture.postgres.capture import PostgresCapture
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSpec
from headwater.capture.state import ask
from headwater.errors import CaptureGap, SourceLost, SourceRefused, TableChanged
from headwater.testing.postgres import PostgresServer
from tests.capture.conftest import Database
from tests.capture.replay import assert_same

pytestmark = pytest.mark.postgres


@pytest.fixture
def items(database: Database) -> Database:
    database.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'one')")
    return database


def failed(database: Database, capturing: Capturing) -> Exception:
    database.until(lambda: capturing.failure is not None, what="a failure")
    assert capturing.failure is not None
    return capturing.failure


def test_a_wrong_password(items: Database, server: PostgresServer) -> None:
    items.run("CREATE ROLE wrong LOGIN REPLICATION PASSWORD 'right'")
    url = server.url_with_password("wrong", "secret-canary", items.name)
    with pytest.raises(SourceRefused, match="ALTER ROLE wrong WITH LOGIN PASSWORD") as refused:
        PostgresCapture(CaptureSpec("c", url, {"items": "items"}), items.log).topics()
    assert "secret-canary" not in str(refused.value)
    items.run("DROP ROLE wrong")


def test_a_server_that_is_not_there(items: Database) -> None:
    spec = CaptureSpec("c", "postgresql://nobody@127.0.0.1:1/nothing", {"items": "items"})
    with pytest.raises(SourceLost, match="Nothing is lost"):
        PostgresCapture(spec, items.log).topics()


def test_missing_privileges_one_after_the_other(items: Database, server: PostgresServer) -> None:
    items.run("CREATE ROLE poor LOGIN PASSWORD 'p'")
    url = server.url_with_password("poor", "p", items.name)

    def tried() -> str:
        capture = PostgresCapture(CaptureSpec(items.name, url, {"items": "items"}), items.log)
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        items.running.append(capturing)
        capturing.start()
        items.until(lambda: capturing.failure is not None or capture.status().phase == "streaming")
        return str(capturing.failure)

    assert 'Run: ALTER ROLE "poor" REPLICATION;' in tried()
    items.run("ALTER ROLE poor REPLICATION")
    assert 'Run: GRANT SELECT ON "public"."items" TO "poor";' in tried()
    items.run("GRANT SELECT ON items TO poor")
    assert "CREATE PUBLICATION" in tried()
    items.run(f"CREATE PUBLICATION headwater_{items.name} FOR TABLE items WITH (publish_via_partition_root = true)")
    assert tried() == "None"
    items.running[-1].stop()
    items.run("DROP OWNED BY poor", "DROP ROLE poor")


def test_a_wal_level_that_is_too_low(tmp_path: object, log: hw.Log) -> None:
    with PostgresServer({"wal_level": "replica", "fsync": "off"}) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
        capturing = Capturing(PostgresCapture(CaptureSpec("c", server.url(), {"items": "items"}), log), print)
        capturing.start()
        capturing._thread.join(30)
        assert isinstance(capturing.failure, SourceRefused)
        assert "ALTER SYSTEM SET wal_level = 'logical';" in str(capturing.failure)


def test_no_primary_key_and_no_table(items: Database) -> None:
    items.run("CREATE TABLE keyless (id int)")
    with pytest.raises(SourceRefused, match='ALTER TABLE "public"."keyless" ADD PRIMARY KEY'):
        items.capture(["keyless"])
    with pytest.raises(SourceRefused, match="there is no table 'nothing'"):
        items.capture(["nothing"])


def test_a_slot_in_use_names_the_process(items: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.capture.postgres.slot.RELEASE_S", 0.2)
    first = items.capture(["items"])
    items.caught_up(first)
    other = hw.open(items.log.url)
    second = Capturing(PostgresCapture(first.capture.spec, other), lambda text: None)
    second.start()
    refused = failed(items, second)
    other.close()
    assert "in use by the server's process" in str(refused)
    assert "pg_terminate_backend(" in str(refused)


def test_a_slot_that_this_log_knows_nothing_of(items: Database) -> None:
    items.run(f"SELECT pg_create_logical_replication_slot('headwater_{items.name}', 'pgoutput')")
    refused = failed(items, items.capture(["items"]))
    assert "pg_drop_replication_slot" in str(refused)


def test_a_slot_that_is_gone_or_was_moved_is_a_gap_until_all_is_compared(items: Database) -> None:
    slot = f"headwater_{items.name}"
    first = items.capture(["items"])
    items.caught_up(first)
    first.stop()
    items.until(lambda: items.rows(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == [(False,)])
    items.run("INSERT INTO items VALUES (2, 'two')", "UPDATE items SET name = 'uno' WHERE id = 1")
    items.run(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    moved = failed(items, items.capture(["items"]))
    assert isinstance(moved, CaptureGap)
    assert "bytes of WAL" in str(moved)
    items.run(f"SELECT pg_drop_replication_slot('{slot}')")
    gone = failed(items, items.capture(["items"]))
    assert isinstance(gone, CaptureGap)
    assert f"headwater capture resnapshot {items.name} --all" in str(gone)
    ask(items.log, items.name, ["*"])
    again = items.capture(["items"])
    items.caught_up(again)
    assert_same(items.log, items.url, "items")
    items.run("INSERT INTO items VALUES (3, 'three')")
    items.caught_up(again)
    assert_same(items.log, items.url, "items")


def test_another_server_is_a_gap(items: Database) -> None:
    first = items.capture(["items"])
    items.caught_up(first)
    first.stop()
    with PostgresServer({"fsync": "off"}) as other:
        with psycopg.connect(other.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
        spec = CaptureSpec(items.name, other.url(), {"items": "items"})
        capturing = Capturing(PostgresCapture(spec, items.log), lambda text: None)
        capturing.start()
        refused = failed(items, capturing)
    assert "another server" in str(refused)


def test_added_columns_and_wider_types_evolve_the_topic(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run(
        "INSERT INTO items VALUES (2, 'before')",
        "ALTER TABLE items ADD COLUMN price numeric(8,2) DEFAULT 1.5",
        "ALTER TABLE items ADD COLUMN count smallint",
        "INSERT INTO items VALUES (3, 'after', 2.25, 7)",
        "ALTER TABLE items ALTER COLUMN count TYPE bigint",
        "INSERT INTO items VALUES (4, 'wide', 2.25, 5000000000)",
        "UPDATE items SET price = 3, count = 1 WHERE id < 3",
    )
    items.caught_up(capturing)
    assert items.log.topic("items").schema.names == ["id", "name", "price", "count"]
    assert_same(items.log, items.url, "items")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_old_rows_have_the_default_of_an_added_column(items: Database, identity: str) -> None:
    """The stream does not tell of them: PostgreSQL notes the value beside the table."""
    items.run(f"ALTER TABLE items REPLICA IDENTITY {identity}", "INSERT INTO items VALUES (2, 'two'), (3, 'three')")
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run(
        "UPDATE items SET name = 'before' WHERE id = 2",
        "ALTER TABLE items ADD COLUMN price numeric(8,2) DEFAULT 1.5",
        "UPDATE items SET name = 'after' WHERE id = 3",
        "INSERT INTO items VALUES (4, 'four')",
    )
    items.caught_up(capturing)
    assert items.log.topic("items").schema.names == ["id", "name", "price"]
    assert_same(items.log, items.url, "items")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE items RENAME COLUMN name TO title", r"column 'name' is gone \(renamed to 'title'\?\)"),
        ("ALTER TABLE items DROP COLUMN name", "column 'name' is gone"),
        ("ALTER TABLE items ALTER COLUMN id TYPE text", "column 'id' has another type"),
        ("ALTER TABLE items RENAME TO goods", "it was renamed to 'public.goods'"),
    ],
    ids=["renamed", "dropped", "retyped", "table renamed"],
)
def test_other_changes_of_a_table_stop_with_what_to_do(items: Database, statement: str, words: str) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("INSERT INTO items VALUES (2, 'fine')", statement)
    items.run(f"UPDATE {'goods' if 'goods' in statement else 'items'} SET id = id")
    stopped = failed(items, capturing)
    assert isinstance(stopped, TableChanged)
    with pytest.raises(TableChanged, match=words):
        raise stopped


def test_a_renamed_column_that_is_renamed_back_goes_on_once_it_is_compared(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("ALTER TABLE items RENAME COLUMN name TO title", "INSERT INTO items VALUES (5, 'five')")
    failed(items, capturing)
    items.run("ALTER TABLE items RENAME COLUMN title TO name")
    again = items.capture(["items"])
    stopped = failed(items, again)
    assert "renamed to 'title'" in str(stopped)
    assert "headwater capture resnapshot" in str(stopped)
    items.run("INSERT INTO items VALUES (6, 'six')")
    ask(items.log, items.name, ["items"])
    items.caught_up(mended := items.capture(["items"]))
    items.run("INSERT INTO items VALUES (7, 'seven')")
    items.caught_up(mended)
    assert_same(items.log, items.url, "items")
