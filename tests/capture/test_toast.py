"""Large values that did not change are not sent again: the topic has them all the same."""

from __future__ import annotations

import pytest

from tests.capture.conftest import Database
from tests.capture.replay import assert_same

pytestmark = pytest.mark.postgres

# Hashes do not compress, so values of some kB are kept out of place.
LARGE = "(SELECT string_agg(md5((%s + g)::text), '') FROM generate_series(1, 200) g)"


def large(seed: str) -> str:
    return LARGE % seed


@pytest.fixture(params=["DEFAULT", "FULL"])
def documents(database: Database, request: pytest.FixtureRequest) -> Database:
    database.run(
        "CREATE TABLE documents (id int PRIMARY KEY, title text, body text, more text)",
        f"ALTER TABLE documents REPLICA IDENTITY {request.param}",
        f"INSERT INTO documents SELECT n, 'title', {large('n')}, NULL FROM generate_series(1, 50) n",
        "INSERT INTO documents SELECT n, 'small', 'body', '{}' FROM generate_series(51, 100) n",
    )
    return database


def test_unchanged_large_values_come_from_the_snapshot_and_from_the_stream(documents: Database) -> None:
    capturing = documents.capture(["documents"])
    documents.caught_up(capturing)
    documents.run(
        "UPDATE documents SET title = 'of the snapshot' WHERE id <= 20",
        "UPDATE documents SET title = 'again' WHERE id <= 10",
        f"UPDATE documents SET body = {large('id * 1000')} WHERE id = 5",
        "UPDATE documents SET title = 'of the stream' WHERE id = 5",
        "UPDATE documents SET body = 'short' WHERE id = 6",
        "UPDATE documents SET title = 'short now' WHERE id = 6",
        f"UPDATE documents SET body = {large('7')} WHERE id = 60",
        "UPDATE documents SET title = 'grown' WHERE id = 60",
    )
    documents.caught_up(capturing)
    assert_same(documents.log, documents.url, "documents")


def test_unchanged_large_values_under_a_changed_key_and_in_one_transaction(documents: Database) -> None:
    capturing = documents.capture(["documents"])
    documents.caught_up(capturing)
    documents.run(
        "UPDATE documents SET id = id + 1000 WHERE id <= 5",
        "UPDATE documents SET title = 'moved' WHERE id = 1001",
        f"BEGIN; INSERT INTO documents VALUES (200, 'a', {large('9')}, NULL);"
        " UPDATE documents SET title = 'b' WHERE id = 200; UPDATE documents SET id = 201 WHERE id = 200;"
        " UPDATE documents SET title = 'c' WHERE id = 201; DELETE FROM documents WHERE id = 1002; COMMIT",
    )
    documents.caught_up(capturing)
    assert_same(documents.log, documents.url, "documents")


def test_unchanged_large_values_in_a_transaction_larger_than_a_round(
    documents: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.postgres.stream.ROUND_BYTES", 50_000)
    capturing = documents.capture(["documents"])
    documents.caught_up(capturing)
    documents.run(
        f"BEGIN; INSERT INTO documents SELECT n, 'a', {large('n')}, NULL FROM generate_series(300, 400) n;"
        " UPDATE documents SET title = 'b' WHERE id >= 300; UPDATE documents SET title = 'c' WHERE id % 3 = 0; COMMIT"
    )
    documents.caught_up(capturing)
    assert_same(documents.log, documents.url, "documents")


def test_a_stop_in_between_forgets_nothing(documents: Database) -> None:
    capturing = documents.capture(["documents"])
    documents.caught_up(capturing)
    documents.run("UPDATE documents SET title = 'before' WHERE id <= 20")
    documents.caught_up(capturing)
    capturing.stop()
    documents.run("UPDATE documents SET title = 'after' WHERE id <= 30")
    documents.caught_up(documents.capture(["documents"]))
    assert_same(documents.log, documents.url, "documents")
