"""What is put into the database: a counter, and for each table a table of its changes and three triggers.

    _headwater_counter(n)              counts the changes of all tables
    _headwater_<table>(n, gone, ...)   a change: the row as it is now, or gone = 1 and its key

They are written in the transaction of the change itself, so they are there if and only if it is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from headwater.capture.sqlite.tables import Table, quoted

COUNTER = "_headwater_counter"
ACTS = ("insert", "delete", "update", "move")


def changes_of(table: Table) -> str:
    return quoted(f"_headwater_{table.name}")


def in_place(connection: sqlite3.Connection, table: Table) -> bool:
    """Whether all of it is there: who drops a table drops its triggers."""
    query = "SELECT count(*) FROM sqlite_schema WHERE name IN (?, ?, ?, ?, ?)"
    names = [f"_headwater_{act}_{table.name}" for act in ACTS]
    found = connection.execute(query, [f"_headwater_{table.name}", *names]).fetchone()[0]
    return bool(found == 1 + len(ACTS))


def made(table: Table) -> Iterator[str]:
    """Statements that put them in place for the columns that the table has now; its changes are lost with the old."""
    yield f"CREATE TABLE IF NOT EXISTS {COUNTER} (n INTEGER NOT NULL)"
    yield f"INSERT INTO {COUNTER} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {COUNTER})"
    yield from removed(table)
    names = ", ".join(quoted(name) for name in table.names)
    yield f"CREATE TABLE {changes_of(table)} (n INTEGER PRIMARY KEY, gone INTEGER NOT NULL, {names})"
    here, there = _written(table, "new", 0), _written(table, "old", 1)
    moved = " OR ".join(f"old.{quoted(name)} IS NOT new.{quoted(name)}" for name in table.key)
    on = quoted(table.name)
    yield f"CREATE TRIGGER {_trigger(table, 'insert')} AFTER INSERT ON {on} BEGIN {here} END"
    yield f"CREATE TRIGGER {_trigger(table, 'delete')} AFTER DELETE ON {on} BEGIN {there} END"
    yield f"CREATE TRIGGER {_trigger(table, 'update')} AFTER UPDATE ON {on} BEGIN {here} END"
    yield f"CREATE TRIGGER {_trigger(table, 'move')} BEFORE UPDATE ON {on} WHEN {moved} BEGIN {there} END"


def removed(table: Table) -> Iterator[str]:
    for act in ACTS:
        yield f"DROP TRIGGER IF EXISTS {_trigger(table, act)}"
    yield f"DROP TABLE IF EXISTS {changes_of(table)}"


def _trigger(table: Table, act: str) -> str:
    return quoted(f"_headwater_{act}_{table.name}")


def _written(table: Table, row: str, gone: int) -> str:
    values = ", ".join(f"{row}.{quoted(name)}" for name in table.names)
    return f"UPDATE {COUNTER} SET n = n + 1; INSERT INTO {changes_of(table)} SELECT n, {gone}, {values} FROM {COUNTER};"
