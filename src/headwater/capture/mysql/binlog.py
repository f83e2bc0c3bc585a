"""The binlog: whether it tells what we need, where it is, and whether it still has what we have not captured (C5).

A place in it is (number of the file) << 32 | offset, so that places are in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pymysql

from headwater.capture.mysql.connection import Connection, ask, asking, connect, quoted, shown, translated, user_of
from headwater.capture.mysql.tables import Table
from headwater.capture.position import SourcePosition, binlog_text
from headwater.errors import CaptureGap, SourceRefused

STATUS_RENAMED = (8, 2)
"""From here on MySQL says BINARY LOG STATUS for MASTER STATUS."""
CONF = "in the section [mysqld] of the server's configuration;  -- then restart it"
SETTINGS = {
    "binlog_format": ("ROW", "it logs statements, not the rows that they change"),
    "binlog_row_image": ("FULL", "it does not tell whole rows"),
    "binlog_row_metadata": ("FULL", "it does not tell the names of columns"),
    "log_bin_compress": ("OFF", "its row images are compressed"),
    "binlog_transaction_compression": ("OFF", "its transactions are compressed"),
    "binlog_row_value_options": ("", "it tells only parts of JSON values"),
}
"""What the server must have them set to, if it knows them, and what is wrong otherwise."""
NEEDED = ("binlog_row_image", "binlog_row_metadata")
"""A server that does not know these is too old."""


@dataclass(frozen=True)
class Server:
    """`identity` tells servers apart: another one has another binlog, whatever its address."""

    maria: bool
    version: tuple[int, ...]
    identity: str

    @classmethod
    def of(cls, connection: Connection) -> Server:
        version, number = ask(connection, "SELECT @@version, @@server_id")[0]
        maria = "mariadb" in version.lower()
        identity = str(number) if maria else str(ask(connection, "SELECT @@server_uuid")[0][0])
        plain = version.split("-")[0].split(".")
        return cls(maria, tuple(int(each) for each in plain if each.isdigit()), identity)


@dataclass(frozen=True)
class Binlog:
    """The server's files `name.000001` and so on; `created` is when the file of the position was begun, in its own
    words: a file of the same name that was begun at another time is another one."""

    name: str
    server: str
    created: int

    def as_json(self) -> dict[str, Any]:
        return {"binlog": self.name, "server": self.server, "created": self.created}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Binlog:
        return cls(told["binlog"], told["server"], told["created"])


def place(file: str, offset: int) -> int:
    return int(file.rpartition(".")[2]) << 32 | offset


def server_id(capture: str, url: str) -> int:
    """The number that we have among the server's replicas: one that is killed and started again has the same."""
    return 1 << 30 | zlib.crc32(f"{capture} {shown(url)}".encode()) & 0x3FFFFFFF


def check_server(connection: Connection, url: str, server: Server, tables: list[Table]) -> None:
    """Everything that can be known to fail later is refused now, with the statement that mends it."""
    source = shown(url)
    found = {str(name).lower(): str(value).upper() for name, value in ask(connection, "SHOW GLOBAL VARIABLES")}
    if found.get("log_bin") not in ("ON", "1"):
        why = "log_bin is OFF: the server writes no binlog"
        raise SourceRefused(source=source, why=why, statement=f"log_bin = binlog and server_id = 1 {CONF}")
    for name, (wanted, why) in SETTINGS.items():
        if name in NEEDED and name not in found:
            what = f"the server is too old: it knows no {name}"
            raise SourceRefused(source=source, why=what, statement="-- MariaDB 10.5, MySQL 8.0.14, or newer")
        if name in found and found[name] != wanted:
            statement = f"SET GLOBAL {name} = '{wanted}';  -- and {name} = {wanted} in [mysqld], for the next start"
            raise SourceRefused(source=source, why=f"{name} is {found[name]}: {why}", statement=statement)
    _, _, only, without = _status(connection, url, server)
    for table in tables:
        if (only and table.database not in only.split(",")) or table.database in without.split(","):
            why = f"the binlog leaves out database {table.database!r}"
            raise SourceRefused(source=source, why=why, statement=f"no binlog_do_db and binlog_ignore_db {CONF}")
        grant = f"GRANT SELECT ON {table.sql_name} TO {user_of(url)};"
        names = ", ".join(quoted(column.name) for column in table.columns)
        asking(connection, url, grant=grant)(f"SELECT {names} FROM {table.sql_name} LIMIT 0")


def end_of(connection: Connection, url: str, server: Server) -> tuple[str, int]:
    """The file that is written now, and how far it is."""
    file, offset, _, _ = _status(connection, url, server)
    return file, offset


def _status(connection: Connection, url: str, server: Server) -> tuple[str, int, str, str]:
    word = "BINARY LOG" if not server.maria and server.version >= STATUS_RENAMED else "MASTER"
    told = "BINLOG MONITOR" if server.maria else "REPLICATION CLIENT"
    rows = asking(connection, url, grant=f"GRANT {told} ON *.* TO {user_of(url)};")(f"SHOW {word} STATUS")
    file, offset, only, without = rows[0][:4]
    return str(file), int(offset), str(only or ""), str(without or "")


def check_binlog(connection: Connection, capture: str, server: Server, known: Binlog, position: SourcePosition) -> None:
    """The server is the one that we know, and has everything from our position on; else what is missing is spelled
    out. That the file is the same is seen when the stream begins."""
    here = binlog_text(known.name, position.end)
    file, offset = here.rsplit(":", 1)

    def gap(why: str) -> CaptureGap:
        return CaptureGap(capture=capture, why=why, position=here)

    if server.identity != known.server:
        raise gap("this is another server than the one it was captured from")
    files = {str(row[0]): int(row[1]) for row in ask(connection, "SHOW BINARY LOGS")}
    if file not in files:
        first = min(files, key=lambda each: place(each, 0))
        raise gap(f"the server has removed {file}: the oldest binlog that it has is {first}")
    if files[file] < int(offset):
        raise gap(f"{file} ends at {files[file]}: {int(offset) - files[file]} bytes of what was captured are not there")


def open_snapshots(url: str, server: Server, count: int) -> list[tuple[Connection, int]]:
    """Connections, each in a transaction that shows the database exactly as of a place in the binlog.

    MariaDB knows that place itself. MySQL is asked for it while all tables are locked, for some milliseconds: without
    the lock, a transaction may stand in the binlog already that others do not see yet.
    """
    opened: list[tuple[Connection, int]] = []
    lock = None if server.maria else connect(url)
    try:
        if lock is not None:
            grant = f"GRANT RELOAD ON *.* TO {user_of(url)};"
            asking(lock, url, grant=grant)("FLUSH TABLES WITH READ LOCK")
        for _ in range(count):
            connection = connect(url)
            opened.append((connection, 0))
            ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if lock is None:
                told = {
                    str(name).lower(): value for name, value in ask(connection, "SHOW STATUS LIKE 'binlog_snapshot%'")
                }
                seen = place(told["binlog_snapshot_file"], int(told["binlog_snapshot_position"]))
            else:
                seen = place(*end_of(lock, url, server))
            opened[-1] = (connection, seen)
    except pymysql.MySQLError as error:
        close(opened)
        raise translated(error, url) from error
    except BaseException:
        close(opened)
        raise
    finally:
        if lock is not None:
            lock.close()
    return opened


def close(opened: list[tuple[Connection, int]]) -> None:
    for connection, _ in opened:
        if connection.open:
            connection.close()
