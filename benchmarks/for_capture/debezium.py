"""The peer: the real Debezium engine from Maven, embedded in a JVM of its own, JSON out, into nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from for_capture.source import PUBLICATION
from headwater.testing.maven import Artifact, JarsMissing, jars
from headwater.testing.postgres import PostgresServer

VERSION = "3.6.0.Final"
LOGGING = "1.7.36"
RUN_S = 900.0


def find_debezium(server: PostgresServer, folder: Path, say: Callable[[str], None]) -> Debezium | None:
    """The engine, if its jars can be had."""
    try:
        found = jars(
            f"debezium-{VERSION}",
            [
                Artifact("io.debezium", "debezium-embedded", VERSION),
                Artifact("io.debezium", "debezium-connector-postgres", VERSION),
                Artifact("org.slf4j", "slf4j-simple", LOGGING),
            ],
        )
    except JarsMissing as missing:
        say(f"without Debezium: {missing}")
        return None
    return Debezium(server, found, folder)


class Debezium:
    def __init__(self, server: PostgresServer, found: Path, folder: Path) -> None:
        self._server = server
        self._folder = folder / "debezium"
        self._folder.mkdir()
        self._classes = f"{found}/*:{self._folder}"
        source = Path(__file__).with_name("Engine.java")
        subprocess.run(["javac", "-cp", f"{found}/*", "-d", str(self._folder), str(source)], check=True)

    def begin(self, slot: str, folder: Path, table: str) -> None:
        """A slot that stands before what is to come: without an offset of its own, Debezium begins at its slot."""
        import psycopg

        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))

    def stream(self, slot: str, folder: Path, changes: int) -> float:
        return self._seconds(slot, "changes", "no_data", changes)

    def snapshot(self, slot: str, folder: Path, table: str, rows: int) -> float:
        return self._seconds(slot, table, "initial_only", rows)

    def _seconds(self, slot: str, table: str, mode: str, changes: int) -> float:
        """From the first change to the last."""
        settings = {
            "name": slot,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "offset.flush.interval.ms": "10000",
            "topic.prefix": "bench",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "debezium",
            "database.password": "debezium",
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "table.include.list": f"public.{table}",
            "snapshot.mode": mode,
            "tombstones.on.delete": "false",
            "converter.schemas.enable": "false",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "max.batch.size": "8192",
            "max.queue.size": "65536",
            "poll.interval.ms": "10",
        }
        file = self._folder / f"{slot}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [
            "java",
            "-Xmx1g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            self._classes,
            "Engine",
            str(file),
            str(changes),
        ]
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S)
        for line in told.stdout.splitlines():
            if line.startswith("seconds "):
                return float(line.removeprefix("seconds "))
        raise RuntimeError(f"Debezium did not get there: {told.stdout[-2000:]}{told.stderr[-2000:]}")
