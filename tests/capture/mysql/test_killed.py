"""C1 through kill -9, of the capture and of the server, under load: the topics replay to exactly the tables."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

import headwater as hw
from headwater.capture.mysql.connection import settings_of
from headwater.testing.mariadb import MariadbServer
from tests.capture.mysql.conftest import need_mariadb
from tests.capture.mysql.load import TABLES, Load
from tests.capture.mysql.replay import assert_same
from tests.capture.test_killed import APP, CLI, KILLS, MOST_STEPS, SEED, Captured, appends

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[MariadbServer]:
    """One of its own: it is killed."""
    need_mariadb()
    with MariadbServer({"max-binlog-size": "1M"}) as running:
        yield running


def test_topics_are_the_tables_after_kills_of_capture_and_server(
    server: MariadbServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chosen = random.Random(SEED)
    with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bank")
        cursor.execute("USE bank")
        for statement in TABLES:
            cursor.execute(statement)
    url = server.url("bank")
    file = tmp_path / "bank.py"
    file.write_text(APP.format(log=f"file:{tmp_path / 'log'}", url=url))
    load = Load(url, SEED)
    request.addfinalizer(load.close)
    for _ in range(50):
        load.step()
    captured = Captured(file)
    request.addfinalizer(captured.kill)
    log = hw.open(f"file:{tmp_path / 'log'}")
    for kill in range(KILLS):
        # at any moment: amid the start, the snapshot, or some appends later
        before, further = appends(log), chosen.choice([0, 1, 2, 5, 20])
        for step in range(MOST_STEPS):
            load.step()
            if appends(log) >= before + further and step > chosen.randint(0, 60):
                break
        if kill == KILLS // 2:
            server.kill()
            server.start()
        else:
            load.alter()
            load.step()
            captured.kill()
            captured.start()
    captured.finish()

    assert_same(log, url, "accounts", "branches")
    told = subprocess.run(
        [sys.executable, "-c", CLI, "capture", "status", "--log", log.url, "--json"], capture_output=True, check=True
    )
    assert re.fullmatch(r"binlog\.\d{6}:\d+", json.loads(told.stdout)[0]["position"])
    assert load.committed > KILLS
    assert os.listdir(server.data).count("binlog.000001") == 1
    log.close()
