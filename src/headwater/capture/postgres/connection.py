"""Connections to the server, and the one place where its refusals become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import conninfo, pq, sql

from headwater.errors import BadCapture, CaptureError, SourceLost, SourceRefused

CONNECT_S = 10
OPTIONS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex"
    " -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""Values are read as text: these settle how the server writes it."""

Connection = psycopg.Connection[tuple[Any, ...]]


def shown(url: str) -> str:
    """The database without its password, for messages."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return f"{urlsplit(url).scheme}://..."
    host = str(given.get("host", "localhost"))
    place = f":{given['port']}" if "port" in given and not host.startswith("/") else ""
    return f"postgresql://{host if not host.startswith('/') else ''}{place}/{given.get('dbname', '')}"


def settings_of(url: str, *, replication: bool = False) -> str:
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise BadCapture(
            what=f"{shown(url)} is no address of a database ({error})",
            do="Write postgresql://USER:PASSWORD@HOST/DATABASE",
        ) from None
    options = f"{given.get('options', '')} {OPTIONS}".strip()
    more = {"replication": "database"} if replication else {}
    return conninfo.make_conninfo(
        url, options=options, client_encoding="utf8", connect_timeout=CONNECT_S, application_name="headwater", **more
    )


def connect(url: str) -> Connection:
    """For statements; each is a transaction of its own."""
    try:
        return psycopg.connect(settings_of(url), autocommit=True)
    except psycopg.Error as error:
        raise translated(error, url) from error


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection whose refusals, whatever is done with it, become ours."""
    try:
        with closing(connect(url)) as connection:
            yield connection
    except psycopg.Error as error:
        raise translated(error, url) from error


def connect_low(url: str, *, replication: bool = False) -> pq.abc.PGconn:
    """For streams: libpq's own handle, connected and logged in."""
    handle = pq.PGconn.connect(settings_of(url, replication=replication).encode())
    if handle.status != pq.ConnStatus.OK:
        words = handle.get_error_message()
        handle.finish()
        raise refused_login(url, words)
    return handle


def refused_login(url: str, words: str) -> CaptureError:
    """libpq gives no code of a refused login that does not go through psycopg: ask once more through it."""
    try:
        psycopg.connect(settings_of(url)).close()
    except psycopg.Error as error:
        return translated(error, url)
    return SourceRefused(
        source=shown(url),
        why=f"the server refuses a replication connection ({_first_line(words)})",
        statement=f"ALTER ROLE {_user(url)} REPLICATION;  -- and let pg_hba.conf admit it",
    )


def translated(error: psycopg.Error, url: str) -> CaptureError:
    """What the server said as an error of ours."""
    code, words, user = _code(error), _first_line(str(error)), _user(url)
    source = shown(url)
    if code in ("28P01", "28000"):
        return SourceRefused(
            source=source,
            why=f"the login of {user} was refused ({words})",
            statement=f"ALTER ROLE {user} WITH LOGIN PASSWORD '...';  -- and put it into the address",
        )
    if code == "42501":
        return SourceRefused(
            source=source,
            why=f"{user} lacks a privilege ({words})",
            statement=f"ALTER ROLE {user} REPLICATION; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user};",
        )
    if code == "3D000":
        return SourceRefused(source=source, why=words, statement="CREATE DATABASE ...;  -- or mend the address")
    return SourceLost(source=source, why=words)


def _code(error: psycopg.Error) -> str | None:
    if error.sqlstate is not None:
        return error.sqlstate
    handle = getattr(error, "pgconn", None)  # a login that failed
    words = str(error)
    if handle is not None and "password authentication failed" in words:
        return "28P01"
    return None


def _user(url: str) -> str:
    return str(conninfo.conninfo_to_dict(url).get("user", "current_user"))


def _first_line(words: str) -> str:
    return words.strip().splitlines()[0] if words.strip() else "it did not say why"


def quoted(*parts: str) -> str:
    """A name as SQL wants it."""
    return sql.Identifier(*parts).as_string(None)
