"""The database that both sides capture: five columns, transactions of a hundred changes, most of them inserts."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.testing.postgres import PostgresServer

TABLE = "(id int PRIMARY KEY, a int, name text, price float8, at timestamptz)"
ROW = "g, g % 1000, 'text number ' || g, g * 1.5, now()"
PUBLICATION, SLOT = "bench", "bench"

# Of a hundred changes of a transaction 60 are inserts, 30 updates, 10 deletes of rows of the transaction before.
MIXED = """
DO $$ BEGIN FOR i IN 1..{transactions} LOOP
  INSERT INTO changes SELECT {row} FROM generate_series(i * 60, i * 60 + 59) g;
  UPDATE changes SET a = a + 1 WHERE id BETWEEN i * 60 AND i * 60 + 29;
  DELETE FROM changes WHERE id BETWEEN (i - 1) * 60 + 50 AND (i - 1) * 60 + 59;
  COMMIT;
END LOOP; END $$"""
CHANGES = 100


@dataclass(frozen=True)
class Sizes:
    changes: int
    rows: int
    latency_s: float
    transaction: int


class Source:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.url()
        self.connection = psycopg.connect(self.url, autocommit=True)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def ask(self, query: str) -> Any:
        row = self.connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def make(self, sizes: Sizes) -> None:
        self.run(f"CREATE TABLE changes {TABLE}", f"CREATE TABLE rows {TABLE}", f"CREATE TABLE large {TABLE}")
        self.run(f"CREATE TABLE live {TABLE}", f"INSERT INTO rows SELECT {ROW} FROM generate_series(1, {sizes.rows}) g")
        self.run("CREATE ROLE debezium SUPERUSER LOGIN PASSWORD 'debezium'")
        self.run("VACUUM ANALYZE rows", f"CREATE PUBLICATION {PUBLICATION} FOR TABLE changes, live")

    def backlog(self, sizes: Sizes) -> int:
        """Commit the changes that everybody streams; how many they are."""
        transactions = sizes.changes // CHANGES
        self.run(MIXED.format(transactions=transactions, row=ROW))
        return transactions * CHANGES - 10  # the first one finds nothing to delete

    def slot(self, name: str) -> None:
        self.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")

    def drop_slots(self) -> None:
        deadline = time.monotonic() + 30
        while self.ask("SELECT count(*) FROM pg_replication_slots WHERE active") and time.monotonic() < deadline:
            time.sleep(0.05)
        self.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def recvlogical(source: Source, slot: str, end: str) -> float:
    """Seconds that the server's own client takes to throw the backlog away: the ceiling."""
    program = source.server.programs / "pg_recvlogical"
    options = ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}", "--endpos", end]
    begun = time.perf_counter()
    subprocess.run(
        [str(program), "-d", source.url, "-S", slot, "--start", "-f", "/dev/null", "-F", "0", *options], check=True
    )
    return time.perf_counter() - begun


def copy_out(source: Source, table: str) -> float:
    """Seconds that COPY takes into nothing."""
    begun = time.perf_counter()
    program = str(source.server.programs / "psql")
    subprocess.run([program, source.url, "-q", "-c", f"\\copy {table} to '/dev/null'"], check=True)
    return time.perf_counter() - begun
