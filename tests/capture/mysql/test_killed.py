"""C1 through kill -9, of the capture and of the server, under load: the topics replay to exactly the tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from headwater.capture.mysql.connection import settings_of
from headwater.testing.mariadb import MariadbServer
from tests.capture.mysql.conftest import need_mariadb
from tests.capture.mysql.load import TABLES, Load
from tests.capture.mysql.replay import assert_same
from tests.capture.test_killed import CLI, SEED, kill_again_and_again

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[MariadbServer]:
    """One of its own: it is killed."""
    need_mariadb()
    with MariadbServer({"max-binlog-size": "64K"}) as running:
        yield running


def test_topics_are_the_tables_after_kills_of_capture_and_server(server: MariadbServer, tmp_path: Path) -> None:
    with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bank")
        cursor.execute("USE bank")
        for statement in TABLES:
            cursor.execute(statement)
    url = server.url("bank")
    with closing(Load(url, SEED)) as load:

        def alter() -> None:
            load.alter()
            load.step()

        with closing(kill_again_and_again(tmp_path, server, load, url, alter)) as log:
            assert_same(log, url, "accounts", "branches")
            command = [sys.executable, "-c", CLI, "capture", "status", "--log", log.url, "--json"]
            told = subprocess.run(command, capture_output=True, check=True)
    assert re.fullmatch(r"binlog\.\d{6}:\d+", json.loads(told.stdout)[0]["position"])
    assert os.listdir(server.data).count("binlog.000001") == 1
