"""A table that is altered is compared with its topic where the stream comes to it: no row differs, nor any weight."""

from __future__ import annotations

import pytest

from headwater.capture.state import ask
from headwater.errors import TableChanged
from tests.capture.mysql.conftest import Database
from tests.capture.mysql.replay import assert_same, weights

pytestmark = pytest.mark.slow


@pytest.fixture
def items(database: Database) -> Database:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name varchar(50))", "INSERT INTO items VALUES (1, 'one'), (2, 'two')"
    )
    return database


def test_added_columns_and_wider_types_evolve_the_topic(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run(
        "INSERT INTO items VALUES (3, 'before')",
        "ALTER TABLE items ADD COLUMN price decimal(8,2) DEFAULT 1.5 AFTER id",
        "ALTER TABLE items ADD COLUMN count smallint NOT NULL",
        "INSERT INTO items VALUES (4, 2.25, 'after', 7)",
        "ALTER TABLE items MODIFY count bigint",
        "INSERT INTO items VALUES (5, 2.25, 'wide', 5000000000)",
        "UPDATE items SET price = 3 WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
    )
    items.caught_up(capturing)
    assert items.log.topic("items").schema.names == ["id", "name", "price", "count"]
    assert_same(items.log, items.url, "items")
    assert set(weights(items.log, "items").values()) <= {0, 1}


def test_changes_of_a_table_that_no_row_tells_of(items: Database) -> None:
    """Partitions emptied, values converted, a copy put in the table's place as online schema changes do."""
    items.run("ALTER TABLE items PARTITION BY HASH (id) PARTITIONS 2")
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("ALTER TABLE items TRUNCATE PARTITION p1")
    items.caught_up(capturing)
    assert_same(items.log, items.url, "items")
    items.run(
        "ALTER TABLE items REMOVE PARTITIONING",
        "CREATE TABLE copied (id int PRIMARY KEY, name varchar(50), more int DEFAULT 4)",
        "INSERT INTO copied (id, name) SELECT id, upper(name) FROM items",
        "RENAME TABLE items TO old, copied TO items",
        "INSERT INTO items VALUES (9, 'nine', 9)",
    )
    items.caught_up(capturing)
    assert_same(items.log, items.url, "items")
    assert set(weights(items.log, "items").values()) <= {0, 1}


def test_statements_that_change_no_rows_do_not_stop_it(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run(
        "CREATE INDEX by_name ON items (name)",
        "CREATE TABLE other AS SELECT * FROM items",
        "CREATE TRIGGER noted AFTER INSERT ON other FOR EACH ROW DELETE FROM items WHERE id = NEW.id",
        "INSERT INTO other VALUES (1, 'gone')",
        "ANALYZE TABLE items",
        "DROP TABLE other",
    )
    items.caught_up(capturing)
    assert_same(items.log, items.url, "items")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE items CHANGE name title varchar(50)", r"column 'name' is gone \(renamed to 'title'\?\)"),
        ("ALTER TABLE items DROP COLUMN name", "column 'name' is gone"),
        ("ALTER TABLE items MODIFY name blob", "column 'name' has another type"),
        ("ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (id, name)", r"its primary key is \(id, name\) now"),
        ("RENAME TABLE items TO goods", "there is no table 'items'"),
        ("DROP TABLE items", "there is no table 'items'"),
    ],
    ids=["renamed", "dropped", "retyped", "rekeyed", "table renamed", "table dropped"],
)
def test_other_changes_of_a_table_stop_with_what_to_do(items: Database, statement: str, words: str) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("INSERT INTO items VALUES (7, 'fine')", statement)
    stopped = items.failed(capturing)
    assert isinstance(stopped, TableChanged)
    with pytest.raises(TableChanged, match=words):
        raise stopped


def test_a_renamed_column_that_is_renamed_back_goes_on(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("ALTER TABLE items CHANGE name title varchar(50)", "INSERT INTO items VALUES (5, 'five')")
    assert "renamed to 'title'" in str(items.failed(capturing))
    assert "renamed to 'title'" in str(items.failed(items.capture(["items"])))
    items.run("ALTER TABLE items CHANGE title name varchar(50)", "INSERT INTO items VALUES (6, 'six')")
    ask(items.log, items.name, ["items"])
    items.caught_up(mended := items.capture(["items"]))
    items.run("INSERT INTO items VALUES (7, 'seven')")
    items.caught_up(mended)
    assert items.log.topic("items").schema.names == ["id", "name"]
    assert_same(items.log, items.url, "items")
