"""The peer: the real Debezium engine, JSON out, into nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from for_capture.source import PUBLICATION
from headwater.testing.debezium import DebeziumTelling, command, debezium_jars, settings_of
from headwater.testing.maven import JarsMissing
from headwater.testing.postgres import PostgresServer

RUN_S = 900.0


def find_debezium(server: PostgresServer, folder: Path, say: Callable[[str], None]) -> Debezium | None:
    """The engine, if its jars can be had."""
    try:
        found = debezium_jars()
    except JarsMissing as missing:
        say(f"without Debezium: {missing}")
        return None
    return Debezium(server, found, folder)


class Debezium:
    def __init__(self, server: PostgresServer, found: Path, folder: Path) -> None:
        self._server = server
        self._found = found
        self._folder = folder / "debezium"
        self._folder.mkdir()

    def begin(self, slot: str, folder: Path, table: str) -> None:
        """A slot that stands before what is to come: without an offset of its own, Debezium begins at its slot."""
        import psycopg

        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))

    def stream(self, slot: str, folder: Path, changes: int) -> float:
        return self._seconds(slot, "changes", "no_data", changes)

    def snapshot(self, slot: str, folder: Path, table: str, rows: int) -> float:
        return self._seconds(slot, table, "initial_only", rows)

    def telling(self, slot: str, table: str) -> DebeziumTelling:
        """From its slot on, to a consumer that has each message at once."""
        return DebeziumTelling(self._found, self._settings(slot, table, "no_data"), self._folder)

    def _settings(self, slot: str, table: str, mode: str) -> dict[str, str]:
        return settings_of(
            self._server,
            slot,
            f"public.{table}",
            publication_name=PUBLICATION,
            publication_autocreate_mode="disabled",
            snapshot_mode=mode,
            tombstones_on_delete="false",
            max_batch_size="8192",
            max_queue_size="65536",
        )

    def _seconds(self, slot: str, table: str, mode: str, changes: int) -> float:
        """From the first change to the last."""
        settings = self._settings(slot, table, mode)
        asked = command(self._found, settings, self._folder / f"{slot}.properties", changes)
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=RUN_S)
        for line in told.stdout.splitlines():
            if line.startswith("seconds "):
                return float(line.removeprefix("seconds "))
        raise RuntimeError(f"Debezium did not get there: {told.stdout[-2000:]}{told.stderr[-2000:]}")
