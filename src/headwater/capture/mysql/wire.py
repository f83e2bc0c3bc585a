"""The connection that mysql-replication reads the binlog from.

It logs in, registers and asks for the stream through pymysql and mysql-replication, which also read every event that is
rare. Row images, and descriptions of tables that are known, do not reach it: it would make a dict of every row.
"""

from __future__ import annotations

import select
import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql
from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import FormatDescriptionEvent, RotateEvent

from headwater.capture.mysql.connection import READ_S, Connection, settings_of, shown
from headwater.errors import SourceLost

HEARTBEAT_S = 0.2
"""How often the server says that there is nothing new."""
RECEIVED_BYTES = 1 << 20
PART_BYTES = 0xFFFFFF
"""A packet of this size goes on in the next."""
COMMANDS = (0x12, 0x1E)
"""Those that begin a stream of the binlog."""
HEADER = 20
"""An OK byte; uint32 time, uint8 type, uint32 server, uint32 size, uint32 where it ends, uint16 flags."""
CHECKSUM, CRC32 = 4, 1
"""Its bytes, and what the event that describes the format calls it."""
ROTATE, FORMAT, HEARTBEAT, MARIADB_GTID = 4, 15, 27, 162

Keep = Callable[[bytes], bool]
"""Told of each event as it comes, from its OK byte to before its checksum; whether it is dealt with."""


class Wire(pymysql.Connection):  # type: ignore[misc]
    def __init__(self, keep: Keep, *, source: str, **settings: Any) -> None:
        self._keep = keep
        self._source = source
        self._streams = False
        self._data = b""
        self._at = 0
        self._checked: bool | None = None
        """Whether events of this file have checksums."""
        super().__init__(**settings)
        self._awaited = self._awaits_checksums()

    def _awaits_checksums(self) -> bool:
        """What mysql-replication takes for granted, of all files: the server's setting of now."""
        with self.cursor() as cursor:
            cursor.execute("SELECT @@global.binlog_checksum")
            row = cursor.fetchone()
            return row is not None and str(row[0]).upper() != "NONE"

    @property
    def pending(self) -> bool:
        """Whether more has come."""
        if self._at < len(self._data):
            return True
        waiting = getattr(self._sock, "pending", None)  # with TLS
        return bool(waiting is not None and waiting()) or bool(select.select([self._sock], [], [], 0)[0])

    def _write_bytes(self, data: bytes) -> None:
        super()._write_bytes(data)
        self._streams = self._streams or (len(data) > 4 and data[4] in COMMANDS)

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        if not self._streams:
            return super()._read_packet(packet_type)
        while True:
            body = self._next_packet()
            if body[0] == 0:
                event = self._event(body)
                if self._keep(event):
                    continue
                body = body if event[5] == FORMAT else self._as_awaited(event)
            packet = packet_type(body, self.encoding)
            if packet.is_error_packet():
                packet.raise_for_error()
            return packet

    def _event(self, body: bytes) -> bytes:
        """Checked, and without its checksum. The event that describes a file's format says whether there are any; for
        the one that names the file, which comes before, it is tried."""
        right = zlib.crc32(memoryview(body)[1:-CHECKSUM]) == int.from_bytes(body[-CHECKSUM:], "little")
        if body[5] == FORMAT:
            self._checked = body[-CHECKSUM - 1] == CRC32
        checked = right if self._checked is None else self._checked
        if checked and not right:
            raise SourceLost(source=self._source, why="an event of the binlog came with a wrong checksum")
        if body[5] == ROTATE:
            self._checked = None
        return body[:-CHECKSUM] if checked else body

    def _as_awaited(self, event: bytes) -> bytes:
        """For mysql-replication, which also takes it that four bytes stand behind every description of a table."""
        size = len(event) - 1 + (CHECKSUM if self._awaited else 0)
        return event[:10] + size.to_bytes(4, "little") + event[14:] + bytes(CHECKSUM)

    def _next_packet(self) -> bytes:
        parts = []
        while True:
            size = int.from_bytes(self._take(4)[:3], "little")
            parts.append(self._take(size))
            if size < PART_BYTES:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int) -> bytes:
        at = self._at
        if len(self._data) - at < size:
            chunks, missing = [self._data[at:]], size - (len(self._data) - at)
            while missing > 0:
                chunks.append(self._receive())
                missing -= len(chunks[-1])
            self._data, at = b"".join(chunks), 0
        self._at = at + size
        return self._data[at : at + size]

    def _receive(self) -> bytes:
        try:
            more: bytes = self._sock.recv(RECEIVED_BYTES)
        except OSError as error:
            raise SourceLost(source=self._source, why=f"the connection broke ({error})") from error
        if not more:
            raise SourceLost(source=self._source, why="the server closed the connection")
        return more


class Events:
    """The stream from a place on: `next` gives what `keep` does not keep."""

    def __init__(self, url: str, number: int, file: str, offset: int, keep: Keep, *, after: str | None = None) -> None:
        """Or after the transactions that MariaDB calls so, wherever they are."""
        self._url = url
        self._keep = keep
        self._wire: Wire | None = None
        settings = {**settings_of(url), "read_timeout": READ_S}
        self._reader = BinLogStreamReader(
            connection_settings=settings,
            ctl_connection_settings=dict(settings),
            server_id=number,
            log_file=file,
            log_pos=offset,
            auto_position=after,
            is_mariadb=after is not None,
            resume_stream=True,
            blocking=True,
            filter_non_implemented_events=False,
            slave_heartbeat=HEARTBEAT_S,
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )

    def _connect(self, **settings: Any) -> Connection:
        """The first is for the stream, the second for what mysql-replication asks beside it."""
        database = settings.pop("db", settings["database"])
        given = {**settings, "database": database}
        if self._wire is not None:
            return pymysql.Connection(**given)
        self._wire = Wire(self._keep, source=shown(self._url), **given)
        return self._wire

    @property
    def pending(self) -> bool:
        return self._wire is not None and self._wire.pending

    def next(self) -> Any:
        """mysql-replication's event."""
        return self._reader.fetchone()

    def close(self) -> None:
        self._reader.close()


def begun(url: str, number: int, file: str, offset: int) -> int:
    """When the server began this file, in its own words; also whether it lets us read it at all."""
    with closing(Events(url, number, file, offset, lambda event: False)) as stream:
        while True:
            event = stream.next()
            if isinstance(event, FormatDescriptionEvent):
                return int(event.timestamp)


def found(url: str, number: int, after: str) -> tuple[str, int, int]:
    """Where in this server's binlog these transactions end: the file, the offset, and when the file was begun."""
    where: list[int] = []

    def keep(event: bytes) -> bool:
        size, end = (int.from_bytes(event[at : at + 4], "little") for at in (10, 14))
        if event[5] == MARIADB_GTID:
            where.append(end - size)
        elif event[5] == HEARTBEAT:
            where.append(end)
        return bool(where) and event[5] != HEARTBEAT

    with closing(Events(url, number, "", 4, keep, after=after)) as stream:
        file, created = "", 0
        while not where:
            event = stream.next()
            if isinstance(event, RotateEvent):
                file = str(event.next_binlog)
            elif isinstance(event, FormatDescriptionEvent):
                created = int(event.timestamp)
        return file, where[0], created
