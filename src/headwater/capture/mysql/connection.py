"""Connections to the server, and the one place where its refusals become ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import CR, ER

from headwater.errors import BadCapture, CaptureError, SourceLost, SourceRefused

CONNECT_S = 10
READ_S = 60.0
"""The stream says every second that it lives; statements may take as long as they take."""
SETTLED = (
    "SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, wait_timeout = 86400"
    "/*M!100101 , max_statement_time = 0 *//*!80000 , max_execution_time = 0 */"
)
"""Values are read as text: this settles how the server writes it."""
OPTIONS = {"unix_socket": "unix_socket", "ssl_ca": "ssl_ca", "ssl_cert": "ssl_cert", "ssl_key": "ssl_key"}
"""What may stand behind the `?` of an address, and what pymysql calls it."""

LOGIN = (ER.ACCESS_DENIED_ERROR, 1698)
DATABASE = (ER.BAD_DB_ERROR, ER.DBACCESS_DENIED_ERROR)
TABLE = (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR)
PRIVILEGE = (ER.SPECIFIC_ACCESS_DENIED_ERROR,)

Connection: TypeAlias = pymysql.Connection
Rows = tuple[tuple[Any, ...], ...]


def shown(url: str) -> str:
    """The database without its password, for messages."""
    parts = urlsplit(url)
    place = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or 'localhost'}{place}{parts.path}"


def settings_of(url: str) -> dict[str, Any]:
    """For pymysql."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    unknown = [name for name in asked if name not in OPTIONS]
    database = unquote(parts.path.lstrip("/"))
    if unknown or not database or "/" in database:
        what = f"an unknown option {unknown[0]!r}" if unknown else "no database"
        raise BadCapture(
            what=f"{shown(url)}: {what} in the address",
            do=f"Write {parts.scheme}://USER:PASSWORD@HOST:PORT/DATABASE; options are {', '.join(OPTIONS)}",
        )
    return {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": database,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": CONNECT_S,
        "init_command": SETTLED,
        **{OPTIONS[name]: values[-1] for name, values in asked.items()},
    }


def connect(url: str) -> Connection:
    """For statements; each is a transaction of its own."""
    try:
        return pymysql.Connection(**settings_of(url))
    except pymysql.MySQLError as error:
        raise translated(error, url) from error
    except RuntimeError as error:  # MySQL's own way of login, without TLS
        raise BadCapture(
            what=f"{shown(url)}: {error}", do="Install it: pip install cryptography; or connect with TLS: ?ssl_ca=PATH"
        ) from None


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection whose refusals, whatever is done with it, become ours."""
    try:
        with closing(connect(url)) as connection:
            yield connection
    except pymysql.MySQLError as error:
        raise translated(error, url) from error


def ask(connection: Connection, statement: str, given: tuple[Any, ...] = ()) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(statement, given or None)
        rows: Rows = tuple(cursor.fetchall())
        return rows


def translated(error: pymysql.MySQLError, url: str, *, grant: str = "") -> CaptureError:
    """What the server said as an error of ours; `grant` is what was needed."""
    code, words = code_of(error), str(error.args[-1]) if error.args else str(error)
    source, user = shown(url), user_of(url)
    if code in LOGIN:
        return SourceRefused(
            source=source,
            why=f"the login of {user} was refused ({words})",
            statement=f"ALTER USER {user} IDENTIFIED BY '...';  -- and put it into the address",
        )
    if code in DATABASE:
        database = settings_of(url)["database"]
        statement = f"CREATE DATABASE {quoted(database)}; GRANT SELECT ON {quoted(database)}.* TO {user};"
        return SourceRefused(source=source, why=words, statement=f"{statement}  -- or mend the address")
    if code in TABLE:
        return SourceRefused(source=source, why=words, statement=grant or f"GRANT SELECT ON ... TO {user};")
    if code in PRIVILEGE:
        needed = grant or f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user};"
        return SourceRefused(source=source, why=f"{user} lacks a privilege ({words})", statement=needed)
    return SourceLost(source=source, why=words)


def code_of(error: pymysql.MySQLError) -> int:
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else CR.CR_UNKNOWN_ERROR


def user_of(url: str) -> str:
    return f"'{settings_of(url)['user']}'@'%'"


def quoted(*parts: str) -> str:
    """A name as SQL wants it."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def asking(connection: Connection, url: str, *, grant: str = "") -> Callable[[str], Rows]:
    """`ask`, with refusals that name what to grant."""

    def asked(statement: str) -> Rows:
        try:
            return ask(connection, statement)
        except pymysql.MySQLError as error:
            raise translated(error, url, grant=grant) from error

    return asked
