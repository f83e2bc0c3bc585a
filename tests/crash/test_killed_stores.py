"""kill -9 of a process in the middle of an apply: rows and mark never part, and nothing that was applied is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import duckdb
import pytest

from headwater.serve.store import Store, Target
from headwater.testing.postgres import PostgresServer, binaries
from tests.crash.stores import PAGES, opened

KILLS = int(os.environ.get("HEADWATER_KILLS", "40")) // 10
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if binaries() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer() as running:
        yield running


@dataclass
class Zygote:
    stdin: TextIO
    stdout: TextIO


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.stores"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Zygote(process.stdin, process.stdout)
        process.stdin.close()


def state_of(kind: str, where: str, store: Target) -> tuple[list[tuple[str, int]], int]:
    """Rows and the number of the mark, of one moment: a server may still be busy with what a dead client asked for."""
    if kind != "parquet":
        assert hasattr(store, "read")
        reader: Store = store
        table, mark = reader.read()
        return [(row["page"], row["n"]) for row in table.to_pylist()], mark.number
    folder = where.removeprefix("parquet:")
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT page, n FROM '{folder}/current/*.parquet'").fetchall()
    return rows, store.mark().number


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "parquet"])
def test_killed_in_the_middle_of_an_apply_rows_are_those_of_the_mark(
    kind: str, zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = {"sqlite": str(tmp_path), "parquet": f"parquet:{tmp_path / 'v'}"}
    if kind == "postgres":
        where[kind] = request.getfixturevalue("server").url() + "&table=v"
    seed = random.Random(7)
    for _ in range(KILLS):
        zygote.stdin.write(f"{kind} {where[kind]}\n")
        zygote.stdin.flush()
        pid = int(zygote.stdout.readline().removeprefix("pid "))
        acknowledged, begun = int(zygote.stdout.readline()), time.monotonic()
        acknowledged, took_s = int(zygote.stdout.readline()), time.monotonic() - begun
        killing = threading.Timer(seed.uniform(0, 2 * took_s), os.kill, (pid, signal.SIGKILL))
        killing.start()
        while (said := zygote.stdout.readline().strip()) != "dead":
            acknowledged = int(said)
        killing.join()
        store = opened(kind, where[kind])
        rows, number = state_of(kind, where[kind], store)
        assert number in (acknowledged, acknowledged + 1)
        assert sorted(rows) == sorted((page, number) for page in PAGES)
        store.close()
