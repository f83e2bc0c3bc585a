"""The publication and the replication slot: made, and checked before every run, so that nothing is skipped silently.

The slot is ours if this log knows it. It may stand before our position (an acknowledgement was lost), never after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq

from headwater.capture.position import SourcePosition, lsn_of, lsn_text
from headwater.capture.postgres.connection import Connection, connect_low, quoted, shown
from headwater.capture.postgres.tables import Table
from headwater.errors import CaptureGap, SourceLost, SourceRefused

RELEASE_S = 10.0
"""How long a slot is waited for that another process, perhaps one just killed, still holds."""


@dataclass(frozen=True)
class Slot:
    name: str
    system: str
    """The identifier of the server's data: another server is another source, whatever its address."""
    begins: int


@dataclass(frozen=True)
class Made:
    """A new slot; `snapshot` shows the database exactly as it was when it began, as long as `holder` lives."""

    slot: Slot
    snapshot: str
    holder: pq.abc.PGconn


def slot_name(capture: str) -> str:
    return "headwater_" + re.sub(r"[^a-z0-9_]", "_", capture.lower())[:50]


def check_server(connection: Connection, url: str, tables: Sequence[Table]) -> None:
    """Everything that can be known to fail later is refused now, with the statement that mends it."""
    source = shown(url)
    level: Any = connection.execute("SHOW wal_level").fetchone()
    if level[0] != "logical":
        raise SourceRefused(
            source=source,
            why=f"wal_level is {level[0]!r}: the server does not write what logical decoding needs",
            statement="ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
        )
    user, may = connection.execute(
        "SELECT current_user, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone() or ("", False)
    if not may:
        raise SourceRefused(
            source=source, why=f"{user} may not replicate", statement=f"ALTER ROLE {quoted(user)} REPLICATION;"
        )
    for table in tables:
        readable: Any = connection.execute("SELECT has_table_privilege(%s::oid, 'SELECT')", (table.oid,)).fetchone()
        if not readable[0]:
            raise SourceRefused(
                source=source,
                why=f"{user} may not read table {table.name!r}",
                statement=f"GRANT SELECT ON {table.sql_name} TO {quoted(user)};",
            )


def ensure_publication(connection: Connection, url: str, capture: str, tables: Sequence[Table]) -> None:
    """The publication has all of our tables, and tells all of their changes."""
    name = slot_name(capture)
    wanted = ", ".join(table.sql_name for table in tables)
    found: Any = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, puballtables FROM pg_publication"
        " WHERE pubname = %s",
        (name,),
    ).fetchone()
    if found is None:
        statement = f"CREATE PUBLICATION {name} FOR TABLE {wanted} WITH (publish_via_partition_root = true)"
    else:
        if not found[0]:
            raise SourceRefused(
                source=shown(url),
                why=f"publication {name} leaves out some kinds of changes",
                statement=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');",
            )
        listed = connection.execute(
            "SELECT prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = prpubid WHERE pubname = %s",
            (name,),
        ).fetchall()
        missing = [table for table in tables if (table.oid,) not in listed and not found[1]]
        if not missing:
            return
        statement = f"ALTER PUBLICATION {name} ADD TABLE {', '.join(table.sql_name for table in missing)}"
    try:
        connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceRefused(
            source=shown(url),
            why=f"the publication cannot be made ({str(error).splitlines()[0]})",
            statement=f"{statement};  -- as the owner of the tables, with CREATE on the database",
        ) from error


def system_of(connection: Connection) -> str:
    row: Any = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    return str(row[0])


def refuse_strange_slot(connection: Connection, url: str, name: str) -> None:
    if connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone():
        raise _refused_slot(url, name, "42710", "")


def make_slot(connection: Connection, url: str, capture: str) -> Made:
    name = slot_name(capture)
    holder = connect_low(url, replication=True)
    result = holder.exec_(f"CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput (SNAPSHOT 'export')".encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        words, code = result.get_error_message(), (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        holder.finish()
        raise _refused_slot(url, name, code, words)
    begins, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
    return Made(Slot(name, system_of(connection), lsn_of(begins.decode())), snapshot.decode(), holder)


def _refused_slot(url: str, name: str, code: str, words: str) -> SourceRefused | SourceLost:
    source = shown(url)
    if code == "42710":
        return SourceRefused(
            source=source,
            why=f"replication slot {name!r} is there already, and this log knows nothing of it",
            statement=f"SELECT pg_drop_replication_slot('{name}');  -- or give this capture another name=",
        )
    if code == "53400":
        return SourceRefused(
            source=source,
            why="all replication slots are taken",
            statement="ALTER SYSTEM SET max_replication_slots = ...;  -- then restart the server",
        )
    return SourceLost(source=source, why=words.strip())


def drop_slot(connection: Connection, url: str, name: str) -> None:
    """If it is there, as soon as nobody reads from it."""
    await_free(connection, url, name)
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND NOT active",
        (name,),
    )


def check_slot(connection: Connection, url: str, capture: str, slot: Slot, position: SourcePosition) -> None:
    """The slot is there, ours, free, and not past our position; else what is missing is spelled out."""
    here = lsn_text(position.end)

    def gap(why: str) -> CaptureGap:
        return CaptureGap(capture=capture, why=why, position=here)

    if system_of(connection) != slot.system:
        raise gap("this is another server than the one it was captured from")
    await_free(connection, url, slot.name)
    row: Any = connection.execute(
        "SELECT confirmed_flush_lsn::text, wal_status, plugin, database = current_database() FROM pg_replication_slots"
        " WHERE slot_name = %s",
        (slot.name,),
    ).fetchone()
    if row is None:
        raise gap(f"its replication slot {slot.name!r} is gone: the server has kept nothing for it")
    confirmed, kept, plugin, here_made = row
    if plugin != "pgoutput" or not here_made:
        raise gap(f"replication slot {slot.name!r} is of another database or plugin")
    if kept == "lost":
        raise gap(f"the server has removed WAL that slot {slot.name!r} needs (max_slot_wal_keep_size)")
    if lsn_of(confirmed) > position.end:
        ahead = lsn_of(confirmed) - position.end
        raise gap(f"its slot was moved on to {confirmed}: {ahead} bytes of WAL, from {here} on, are skipped")


def await_free(connection: Connection, url: str, name: str) -> None:
    deadline = time.monotonic() + RELEASE_S
    query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    while True:
        row: Any = connection.execute(query, (name,)).fetchone()
        if row is None or row[0] is None:
            return
        if time.monotonic() >= deadline:
            raise SourceRefused(
                source=shown(url),
                why=f"replication slot {name!r} is in use by the server's process {row[0]}: another capture runs",
                statement=f"SELECT pg_terminate_backend({row[0]});  -- or stop the other capture",
            )
        time.sleep(0.05)
