"""A replica takes the place of the captured server: by GTID, capture goes on there, or says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymysql
import pytest

import headwater as hw
from headwater.capture.mysql.capture import MysqlCapture
from headwater.capture.mysql.connection import settings_of
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSpec
from headwater.errors import CaptureGap, HeadwaterError
from headwater.testing.mariadb import MariadbServer
from tests.capture.mysql.conftest import need_mariadb
from tests.capture.mysql.replay import assert_same

pytestmark = pytest.mark.slow


def run(server: MariadbServer, *statements: str) -> Any:
    with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchone()


def captured(server: MariadbServer, log: hw.Log, until: Callable[..., None]) -> HeadwaterError | None:
    """Until it has caught up, or failed."""
    capturing = Capturing(MysqlCapture(CaptureSpec("c", server.url("shop"), {"items": "items"}), log), print)
    goal = capturing.capture.goal()
    capturing.start()
    until(lambda: capturing.failure is not None or capturing.capture.reached(goal), what="capture")
    capturing.stop()
    return capturing.failure


def test_a_replica_that_has_taken_over_is_captured_from_the_same_transaction_on(
    log: hw.Log, until: Callable[..., None]
) -> None:
    need_mariadb()
    settings = {"log-slave-updates": "1", "gtid-strict-mode": "1"}
    with MariadbServer(settings) as first, MariadbServer({**settings, "server-id": "2"}) as second:
        run(first, "CREATE DATABASE shop", "CREATE TABLE shop.items (id int PRIMARY KEY, name varchar(50))")
        run(
            second,
            "RESET MASTER",
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={first.port}, MASTER_USER='root',"
            " MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
        run(first, "INSERT INTO shop.items SELECT seq, 'first' FROM seq_1_to_100")
        assert captured(first, log, until) is None
        run(first, "UPDATE shop.items SET name = 'later' WHERE id < 50", "DELETE FROM shop.items WHERE id > 90")
        there = run(first, "SELECT @@gtid_binlog_pos")[0]
        assert run(second, f"SELECT MASTER_GTID_WAIT('{there}', 30)") == (0,)
        run(second, "STOP SLAVE", "UPDATE shop.items SET name = concat(name, '!') WHERE id % 2 = 0")
        assert captured(second, log, until) is None
        assert_same(log, second.url("shop"), "items")
        rows = hw.Topic(log, log.topic("items")).read().num_rows
        assert captured(second, log, until) is None
        assert hw.Topic(log, log.topic("items")).read().num_rows == rows
        run(first, "INSERT INTO shop.items VALUES (500, 'only here')")
        parted = captured(first, log, until)
    assert isinstance(parted, CaptureGap)
    assert "another server, whose binlog does not go on from there" in str(parted)
