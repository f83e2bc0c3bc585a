"""The catalog: SQLite connections and transactions. Its tables are in `tables.py`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import apsw
import apsw.sqlite_extra

from headwater.errors import Busy, Corrupt, NewerFormat, StorageFailed, UpgradeBlocked
from headwater.log.embedded import tables
from headwater.log.embedded.bell import Bell
from headwater.log.embedded.lock import UsersLock, WriterLock
from headwater.log.embedded.wal import broken_frame

PATIENCE_S = 10.0
"""How long a writer waits for others before it answers `Busy`."""
CHECKPOINT_PAGES = 1_000
"""The WAL is moved into the main file every 4 MB, then written over: a file that does not grow syncs faster."""
CHECKSUM_BYTES = 8
"""Kept free at the end of each page for the checksum VFS."""


@cache
def _checksum_vfs() -> str:
    """Each page of the catalog has a checksum, verified when it is read: SQLite's own extension, once a process."""
    with apsw.Connection(":memory:") as connection:
        apsw.sqlite_extra.load(connection, "cksumvfs")
    return "cksmvfs"


class Catalog:
    """One write connection a process, one read connection a thread. Readers never wait for writers.

    `write` is for one thread at a time: it is the committer's to see to that.
    """

    def __init__(
        self, path: Path, *, patience_s: float = PATIENCE_S, as_is: bool = False, check_wal: bool = False
    ) -> None:
        """A catalog that is not there is made, one of an older format upgraded; unless `as_is`: then only read it.

        Who is the first to open it is refused (`Corrupt`) if its WAL is damaged: it would be cut off. With `check_wal`
        the others look too, and find the frame in `broken_frame`.
        """
        self.path = path
        self._as_is = as_is
        self.bell = Bell(path.with_name("bell"))
        self._local = threading.local()
        self._poisoned: StorageFailed | None = None
        with ExitStack() as opened:  # closed again if anything is refused
            self._lock = WriterLock(path.with_name("writer.lock"), patience_s=patience_s)
            opened.callback(self._lock.close)
            self._users = UsersLock(path.with_name("users.lock"))
            opened.callback(self._users.close)
            if not self._users.first:
                self._users.share(patience_s=patience_s)
            self.broken_frame = broken_frame(self._wal) if self._users.first or check_wal else None
            if self._users.first:
                self._check_left_behind()
            with self._translated("opening"):
                self._writer = self._connect()
                opened.callback(self._writer.close)
                with self._locked():
                    self._prepare()
            if self._users.first:  # until here others waited: what they find is whole and of our format
                self._users.share(patience_s=patience_s)
            opened.pop_all()

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _check_left_behind(self) -> None:
        """Before anybody reads it: is the WAL whole, and on disk?

        A process that was killed between its commit's last write and the sync has left a commit that SQLite takes for
        made. Whoever repeats that append is told that it is there: so it has to be durable first.
        """
        if self.broken_frame is not None:
            raise Corrupt(
                what=f"frame {self.broken_frame} of the catalog's WAL, with appends after it,", file=str(self._wal)
            )
        self._sync_wal()

    def _sync_wal(self) -> None:
        try:
            with open(self._wal, "rb") as file:  # SQLite's locks are on the other files: closing this one drops none
                os.fsync(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(act="syncing", file=str(self._wal), why=error.strerror or str(error)) from error

    def _prepare(self) -> None:
        if not self.path.stat().st_size:
            self._writer.reserve_bytes("main", CHECKSUM_BYTES)
            self.path.chmod(0o600)
        self._writer.pragma("journal_mode", "wal")
        self._writer.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        with self._transaction() as catalog:
            found = int(catalog.pragma("user_version"))
            if found > tables.FORMAT:
                raise NewerFormat(path=str(self.path), found=found, known=tables.FORMAT)
            if found == 0:
                tables.create(catalog)
            elif found < tables.FORMAT and not self._as_is:
                if not self._users.first:
                    raise UpgradeBlocked(path=str(self.path), found=found, known=tables.FORMAT)
                tables.upgrade(catalog, found)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=_checksum_vfs())
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        connection.pragma("synchronous", "FULL")
        connection.pragma("secure_delete", "ON")  # what is deleted is overwritten: forgetting depends on it
        return connection

    @property
    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        return connection

    @contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """One consistent state of the catalog for all statements inside."""
        with self._translated("reading"):
            connection = self._reader
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:  # a damaged page has ended it already
                    connection.execute("COMMIT")

    @contextmanager
    def look(self) -> Iterator[apsw.Connection]:
        """For one statement, all of whose rows are taken inside: it sees one consistent state by itself."""
        with self._translated("reading"):
            yield self._reader

    @contextmanager
    def write(self) -> Iterator[apsw.Connection]:
        """One durable transaction: on return it is on disk, on an exception nothing of it is.

        After a failed write the writer is poisoned: what reached the disk is unknown until the log is opened again.
        """
        if self._poisoned:
            why = f"an earlier write failed ({self._poisoned.why})"
            raise StorageFailed(act="writing", file=str(self.path), why=why)
        try:
            with self._translated("writing"), self._locked(), self._transaction() as catalog:
                yield catalog
        except StorageFailed as error:
            self._poisoned = error
            raise
        self.bell.ring()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _translated(self, act: str) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Busy(path=str(self.path), waited_s=PATIENCE_S, holder=None) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError) as error:
            raise Corrupt(what="the catalog", file=str(self.path)) from error
        except apsw.IOError as error:
            if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_DATA:
                raise Corrupt(what="a page of the catalog", file=str(self.path)) from error
            raise StorageFailed(act=act, file=str(self.path), why=str(error)) from error
        except (apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StorageFailed(act=act, file=str(self.path), why=str(error)) from error

    def version(self) -> int:
        """Changes whenever any connection but this thread's has committed; costs microseconds."""
        with self._translated("reading"):
            return int(self._reader.pragma("data_version"))

    def truncate_wal(self) -> None:
        """Move everything into the main file and leave no byte in the WAL. For forgetting and for backups."""
        with self._translated("writing"), self._locked():
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._sync_wal()  # else a power cut brings its old bytes back

    def close(self) -> None:
        self._writer.close()
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection
        self._lock.close()
        self._users.close()
