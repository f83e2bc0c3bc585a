"""What stands in the way is refused before anything is read, with the statement that mends it. C5: no gap is silent."""

from __future__ import annotations

import pymysql
import pytest

import headwater as hw
from headwater.capture.mysql.capture import MysqlCapture
from headwater.capture.mysql.connection import settings_of
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSpec
from headwater.capture.state import ask
from headwater.errors import BadCapture, CaptureGap, Fenced, SourceLost, SourceRefused, TableChanged
from headwater.testing.mariadb import MariadbServer
from tests.capture.mysql.conftest import Database, need_mariadb
from tests.capture.mysql.replay import assert_same

pytestmark = pytest.mark.slow


@pytest.fixture
def items(database: Database) -> Database:
    database.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'one')")
    return database


def test_a_wrong_password(items: Database, server: MariadbServer) -> None:
    items.run("CREATE USER 'wrong'@'%' IDENTIFIED BY 'right'")
    url = server.url(items.name, user="wrong", password="secret-canary")
    with pytest.raises(SourceRefused, match="ALTER USER 'wrong'@'%' IDENTIFIED BY") as refused:
        MysqlCapture(CaptureSpec("c", url, {"items": "items"}), items.log).topics()
    assert "secret-canary" not in str(refused.value)
    items.run("DROP USER 'wrong'@'%'")


def test_a_server_that_is_not_there_and_addresses_that_are_none(items: Database) -> None:
    spec = CaptureSpec("c", "mysql://nobody@127.0.0.1:1/nothing", {"items": "items"})
    with pytest.raises(SourceLost, match="Nothing is lost"):
        MysqlCapture(spec, items.log).topics()
    for url, words in (("mysql://nobody@127.0.0.1", "no database"), (f"{items.url}?x=1", "an unknown option 'x'")):
        with pytest.raises(BadCapture, match=words):
            MysqlCapture(CaptureSpec("c", url, {"items": "items"}), items.log).topics()


def test_missing_privileges_one_after_the_other(items: Database, server: MariadbServer) -> None:
    items.run("CREATE USER 'poor'@'%' IDENTIFIED BY 'p'")
    url = server.url(items.name, user="poor", password="p")

    def tried() -> str:
        capture = MysqlCapture(CaptureSpec(items.name, url, {"items": "items"}), items.log)
        capturing = Capturing(capture, lambda text: None)
        items.running.append(capturing)
        capturing.start()
        items.until(lambda: capturing.failure is not None or capture.status().phase == "streaming")
        return str(capturing.failure)

    assert f"GRANT SELECT ON `{items.name}`.* TO 'poor'@'%';" in tried()
    items.run(f"GRANT INSERT ON {items.name}.items TO 'poor'@'%'")
    assert "Run: GRANT BINLOG MONITOR ON *.* TO 'poor'@'%';" in tried()
    items.run("GRANT BINLOG MONITOR ON *.* TO 'poor'@'%'")
    assert f"Run: GRANT SELECT ON `{items.name}`.`items` TO 'poor'@'%';" in tried()
    items.run(f"GRANT SELECT ON {items.name}.items TO 'poor'@'%'")
    assert "Run: GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%';" in tried()
    items.run("GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%'")
    assert tried() == "None"
    items.running[-1].stop()
    items.run("DROP USER 'poor'@'%'")


@pytest.mark.parametrize(
    ("setting", "given", "statement"),
    [
        ("binlog_format", "STATEMENT", "SET GLOBAL binlog_format = 'ROW';"),
        ("binlog_row_image", "MINIMAL", "SET GLOBAL binlog_row_image = 'FULL';"),
        ("binlog_row_metadata", "NO_LOG", "SET GLOBAL binlog_row_metadata = 'FULL';"),
        ("log_bin_compress", "ON", "SET GLOBAL log_bin_compress = 'OFF';"),
    ],
)
def test_a_server_whose_binlog_tells_too_little(items: Database, setting: str, given: str, statement: str) -> None:
    before = items.rows(f"SELECT @@global.{setting}")[0][0]
    items.run(f"SET GLOBAL {setting} = {given}")
    try:
        refused = items.failed(items.capture(["items"]))
    finally:
        items.run(f"SET GLOBAL {setting} = {before!r}")
    assert isinstance(refused, SourceRefused)
    assert f"Run: {statement}" in str(refused)


def test_a_server_without_a_binlog(log: hw.Log) -> None:
    need_mariadb()
    with MariadbServer({"skip-log-bin": "1"}) as server:
        with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE items (id int PRIMARY KEY) ENGINE = InnoDB")
        capturing = Capturing(MysqlCapture(CaptureSpec("c", server.url(), {"items": "items"}), log), print)
        capturing.start()
        capturing._thread.join(30)
    assert isinstance(capturing.failure, SourceRefused)
    assert "log_bin = binlog and server_id = 1 in the section [mysqld]" in str(capturing.failure)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("odd (id int)", "ALTER TABLE `{}`.`odd` ADD PRIMARY KEY"),
        ("odd (id int PRIMARY KEY) ENGINE = MyISAM", "ALTER TABLE `{}`.`odd` ENGINE = InnoDB;"),
        ("odd (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "DROP SYSTEM VERSIONING"),
        ("odd (id int PRIMARY KEY, packed text COMPRESSED)", "MODIFY `packed`"),
        ("odd (id int PRIMARY KEY, old varchar(5) CHARACTER SET dec8)", "MODIFY `old`"),
        (
            "odd (id int PRIMARY KEY, item int, FOREIGN KEY (item) REFERENCES items (id) ON DELETE CASCADE)",
            "ALTER TABLE `{}`.`odd` DROP FOREIGN KEY `odd_ibfk_1`",
        ),
    ],
    ids=["no key", "engine", "versioned", "compressed", "character set", "cascade"],
)
def test_tables_whose_changes_are_not_all_told(items: Database, made: str, words: str) -> None:
    items.run(f"CREATE TABLE {made}")
    with pytest.raises(SourceRefused) as refused:
        items.capture(["odd"])
    assert words.format(items.name) in str(refused.value)


def test_a_table_that_is_not_there(items: Database) -> None:
    with pytest.raises(SourceRefused, match="there is no table 'nothing'"):
        items.capture(["nothing"])


def test_a_binlog_that_was_removed_is_a_gap_until_all_is_compared(items: Database) -> None:
    first = items.capture(["items"])
    items.caught_up(first)
    first.stop()
    items.run("INSERT INTO items VALUES (2, 'two')", "UPDATE items SET name = 'uno' WHERE id = 1", "FLUSH BINARY LOGS")
    newest = items.rows("SHOW MASTER STATUS")[0][0]
    items.until(lambda: items.rows(f"PURGE BINARY LOGS TO '{newest}'") == () and _oldest(items) == newest)
    gone = items.failed(items.capture(["items"]))
    assert isinstance(gone, CaptureGap)
    assert f"the oldest binlog that it has is {newest}" in str(gone)
    assert f"headwater capture resnapshot {items.name} --all" in str(gone)
    ask(items.log, items.name, ["*"])
    again = items.capture(["items"])
    items.caught_up(again)
    assert_same(items.log, items.url, "items")
    items.run("INSERT INTO items VALUES (3, 'three')")
    items.caught_up(again)
    assert_same(items.log, items.url, "items")


def _oldest(items: Database) -> str:
    return str(items.rows("SHOW BINARY LOGS")[0][0])


def test_a_binlog_that_was_begun_anew_and_another_server_are_gaps(log: hw.Log, until: object) -> None:
    """Files of the same names, as long as those that were captured: only their beginnings tell."""
    need_mariadb()

    def run(server: MariadbServer, *statements: str) -> int:
        """The moment, by the server's clock, which tells seconds apart."""
        with pymysql.connect(**settings_of(server.url())) as connection, connection.cursor() as cursor:
            for statement in [*statements, "SELECT unix_timestamp()"]:
                cursor.execute(statement)
            return int((cursor.fetchone() or (0,))[0])

    def tried(server: MariadbServer) -> hw.errors.HeadwaterError | None:
        capturing = Capturing(MysqlCapture(CaptureSpec("c", server.url(), {"items": "items"}), log), print)
        capturing.start()
        until(  # type: ignore[operator]
            lambda: capturing.failure is not None or capturing.capture.status().phase == "streaming"
        )
        if capturing.failure is None:
            goal = capturing.capture.goal()
            until(lambda: capturing.failure is not None or capturing.capture.reached(goal))  # type: ignore[operator]
        capturing.stop()
        return capturing.failure

    made = "CREATE TABLE items (id int PRIMARY KEY, name varchar(3000)) ENGINE = InnoDB"
    with MariadbServer() as server, MariadbServer({"server-id": "2"}) as other:
        begun = run(server, made)
        run(other, made)
        assert tried(server) is None
        assert "another server" in str(tried(other))
        until(lambda: run(server) > begun, what="another second")  # type: ignore[operator]
        run(server, "RESET MASTER", "INSERT INTO items SELECT seq, repeat('x', 3000) FROM seq_1_to_50")
        refused = tried(server)
    assert isinstance(refused, CaptureGap)
    assert "somebody has begun the binlog anew" in str(refused)


def test_a_statement_instead_of_its_rows_and_a_prepared_transaction_are_gaps(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("SET SESSION binlog_format = 'STATEMENT'", "UPDATE items SET name = 'unseen'")
    items.run("SET SESSION binlog_format = 'ROW'")
    gap = items.failed(capturing)
    assert isinstance(gap, CaptureGap)
    assert "a session has set binlog_format: \"UPDATE items SET name = 'unseen'\"" in str(gap)
    ask(items.log, items.name, ["*"])
    again = items.capture(["items"])
    items.caught_up(again)
    assert_same(items.log, items.url, "items")
    items.run("XA START 'x'", "INSERT INTO items VALUES (8, 'eight')", "XA END 'x'", "XA PREPARE 'x'")
    assert "XA PREPARE" in str(items.failed(again))
    items.run("XA COMMIT 'x'")
    ask(items.log, items.name, ["*"])
    items.caught_up(items.capture(["items"]))
    assert_same(items.log, items.url, "items")


def test_of_two_captures_at_once_one_is_fenced_and_nothing_is_told_twice(items: Database) -> None:
    first = items.capture(["items"])
    items.caught_up(first)
    second = items.capture(["items"])

    def one_is_out() -> bool:
        items.run("UPDATE items SET name = uuid()")
        return first.failure is not None or second.failure is not None

    items.until(one_is_out, what="one that ends")
    out, left = (first, second) if first.failure is not None else (second, first)
    assert isinstance(out.failure, Fenced)
    items.caught_up(left)
    assert_same(items.log, items.url, "items")


def test_a_session_that_tells_parts_of_rows_is_noticed(items: Database) -> None:
    capturing = items.capture(["items"])
    items.caught_up(capturing)
    items.run("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE items SET name = 'part'")
    items.run("SET SESSION binlog_row_image = 'FULL'")
    stopped = items.failed(capturing)
    assert isinstance(stopped, TableChanged)
    assert "binlog_row_image" in str(stopped)
    ask(items.log, items.name, ["items"])
    again = items.capture(["items"])
    items.caught_up(again)
    items.run("INSERT INTO items VALUES (9, 'nine')")
    items.caught_up(again)
    assert_same(items.log, items.url, "items")
