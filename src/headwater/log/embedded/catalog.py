"""The catalog: SQLite tables, connections and transactions. What the tables mean is in docs/format.md."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from headwater.errors import Busy, Corrupt, NewerFormat, StorageFailed

FORMAT = 1
BUSY_S = 10.0

TABLES = f"""
CREATE TABLE topics(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, schema BLOB NOT NULL, key TEXT NOT NULL, time TEXT,
  kind TEXT NOT NULL, partitions INTEGER NOT NULL) STRICT;
CREATE TABLE ends(
  topic INTEGER NOT NULL, partition INTEGER NOT NULL, "end" INTEGER NOT NULL, PRIMARY KEY(topic, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE producers(name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, last_append INTEGER) STRICT, WITHOUT ROWID;
CREATE TABLE appends(
  number INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, position TEXT NOT NULL,
  producer TEXT, epoch INTEGER, sequence INTEGER, progress_start TEXT, progress_end TEXT) STRICT;
CREATE UNIQUE INDEX appends_by_producer ON appends(producer, sequence) WHERE producer IS NOT NULL;
CREATE TABLE chunks(
  topic INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
  append INTEGER NOT NULL, crc INTEGER NOT NULL, size INTEGER NOT NULL, file TEXT, data BLOB) STRICT;
CREATE UNIQUE INDEX chunks_by_offset ON chunks(topic, partition, "end");
CREATE INDEX chunks_by_append ON chunks(topic, partition, append, "end");
PRAGMA user_version = {FORMAT};
"""


class Catalog:
    """One write connection a process, one read connection a thread. Readers never wait for writers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write_lock = threading.Lock()
        self._local = threading.local()
        self._poisoned: StorageFailed | None = None
        with self._translated("opening"):
            self._writer = self._connect()
            self._writer.pragma("journal_mode", "wal")
            with self._writer_transaction() as connection:
                found = int(connection.pragma("user_version"))
                if found == 0:
                    connection.execute(TABLES)
                elif found != FORMAT:
                    raise NewerFormat(path=str(path), found=found, known=FORMAT)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(int(BUSY_S * 1000))
        connection.pragma("synchronous", "FULL")
        return connection

    @property
    def reader(self) -> apsw.Connection:
        """This thread's own connection. Errors of statements on it are translated by `read`."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._translated("opening"):
                connection = self._local.connection = self._connect()
        return connection

    @contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """One consistent state of the catalog for all statements inside."""
        connection = self.reader
        with self._translated("reading"):
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[apsw.Connection]:
        """One durable transaction: on return it is on disk, on an exception nothing of it is.

        After a failed write the writer is poisoned: what reached the disk is unknown until the log is opened again.
        """
        with self._write_lock:
            if self._poisoned:
                raise StorageFailed(
                    act="writing", file=str(self.path), why=f"an earlier write failed: {self._poisoned.why}"
                )
            try:
                with self._translated("writing"), self._writer_transaction() as connection:
                    yield connection
            except StorageFailed as error:
                self._poisoned = error
                raise

    @contextmanager
    def _writer_transaction(self) -> Iterator[apsw.Connection]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self, act: str) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Busy(path=str(self.path), waited_s=BUSY_S) from error
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise Corrupt(what="the catalog", file=str(self.path)) from error
        except (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StorageFailed(act=act, file=str(self.path), why=str(error)) from error

    def version(self) -> int:
        """Changes whenever any process has committed; costs microseconds."""
        return int(self.reader.pragma("data_version"))

    def close(self) -> None:
        with self._write_lock:
            self._writer.close()
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection
