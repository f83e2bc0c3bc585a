"""kill -9 of a process in the middle of an apply: rows and mark never part, and nothing that was applied is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from headwater.serve.store import Store, Target
from headwater.testing.postgres import PostgresServer, binaries
from tests.crash.stores import FILLER, opened

KILLS = int(os.environ.get("HEADWATER_KILLS", "40")) // 8
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if binaries() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the pgserver wheel is missing")
    with PostgresServer() as running:
        yield running


def rows_of(kind: str, where: str, store: Target) -> list[tuple[str, int]]:
    if kind != "parquet":
        assert hasattr(store, "read")
        reader: Store = store
        return [(row["page"], row["n"]) for row in reader.read()[0].to_pylist()]
    folder = where.removeprefix("parquet:")
    if not list(Path(folder).glob("current/*.parquet")):
        return []
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT page, n FROM '{folder}/current/*.parquet'").fetchall()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "parquet"])
def test_killed_in_the_middle_of_an_apply_rows_are_those_of_the_mark(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = {"sqlite": str(tmp_path), "parquet": f"parquet:{tmp_path / 'v'}"}
    if kind == "postgres":
        where[kind] = request.getfixturevalue("server").url() + "&table=v"
    seed = random.Random(7)
    acknowledged = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-m", "tests.crash.stores", kind, where[kind]], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            killing = threading.Timer(seed.uniform(0.01, 0.25), process.send_signal, (signal.SIGKILL,))
            killing.start()
            said = process.stdout.read().split()
            killing.join()
        acknowledged = int(said[-1]) if said else acknowledged
        store = opened(kind, where[kind])
        number = store.mark().number
        assert number in (acknowledged, acknowledged + 1)
        rows = rows_of(kind, where[kind], store)
        wanted = {"total", *(f"f{n}" for n in range(FILLER))} if number else set()
        assert len(rows) == len(wanted)
        assert {page for page, _ in rows} == wanted
        assert {n for _, n in rows} <= {number}
        acknowledged = number
        store.close()
    assert acknowledged > 0, "it got something done in between"
