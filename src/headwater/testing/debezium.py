"""The real Debezium engine from Maven, embedded in a JVM of its own, on a PostgreSQL server of `testing.postgres`."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from headwater.testing.maven import Artifact, jars
from headwater.testing.postgres import PostgresServer

VERSION = "3.6.0.Final"
LOGGING = "1.7.36"
ROLE = "debezium"
MAKE_ROLE = f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD '{ROLE}'"
"""For the server's owner to run before."""


def debezium_jars() -> Path:
    """Fetched if they are not there yet; `JarsMissing` if they cannot be had."""
    return jars(
        f"debezium-{VERSION}",
        [
            Artifact("io.debezium", "debezium-embedded", VERSION),
            Artifact("io.debezium", "debezium-connector-postgres", VERSION),
            Artifact("org.slf4j", "slf4j-simple", LOGGING),
        ],
    )


def settings_of(server: PostgresServer, slot: str, table: str, **more: str) -> dict[str, str]:
    """Of an engine that tells one table; `more` are further settings, with _ for the dots in their names."""
    return {
        "name": slot,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "offset.flush.interval.ms": "10000",
        "topic.prefix": "bench",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": ROLE,
        "database.password": ROLE,
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "table.include.list": table,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
        "poll.interval.ms": "10",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def command(found: Path, settings: Mapping[str, str], file: Path, what: int | str) -> list[str]:
    """What starts it: `what` is how many changes to time, or "tell"; `file` is where its settings are put."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    source = Path(__file__).with_name("Engine.java")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xmx1g", quiet, "-cp", f"{found}/*", str(source), str(file), str(what)]


class DebeziumTelling:
    """`with DebeziumTelling(...) as engine:` messages it has told so far are in `engine.messages`, as (key, value)."""

    def __init__(self, found: Path, settings: Mapping[str, str], folder: Path) -> None:
        self.messages: list[tuple[str | None, str | None]] = []
        self.ended: str | None = None
        """Its last words, if it has ended by itself."""
        self._words = folder / "debezium.log"
        with self._words.open("w") as words:
            self._process = subprocess.Popen(
                command(found, settings, folder / "debezium.properties", "tell"),
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            key, tab, value = line.rstrip("\n").partition("\t")
            if not tab:
                self.ended = f"{key} {self._words.read_text()[-2000:]}"
                return
            self.messages.append((key or None, value or None))

    def __enter__(self) -> DebeziumTelling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
