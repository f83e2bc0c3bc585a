"""What lies beside the log for a decider, in one file that all processes share: where events are, and snapshots.

All of it is derived. It may be behind the log, or missing; then it is brought up to date from the log. Nothing in it is
relied upon that the log does not confirm: events found by it must be an aggregate's versions without a gap, a snapshot
must be of a version that the log has reached, of this code, and whole.

    places     by the hash of a key: the offsets of its records, of the topics of events and of command ids
    covered    how far each partition is in `places`
    snapshots  the newest of each aggregate, as JSON
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import apsw
import google_crc32c

from headwater.log.keyhash import key_hash
from headwater.log.protocol import Log
from headwater.records import OFFSET

T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS places(
  topic TEXT NOT NULL, hash INTEGER NOT NULL, "offset" INTEGER NOT NULL, PRIMARY KEY(topic, hash, "offset")
  ) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS covered(
  topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, PRIMARY KEY(topic, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots(
  id TEXT PRIMARY KEY, version INTEGER NOT NULL, "offset" INTEGER NOT NULL, at INTEGER NOT NULL, code TEXT NOT NULL,
  state TEXT NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""
_SNAPSHOTS = 'SELECT id, version, "offset", at, code, state, crc FROM snapshots'
PATIENCE_MS = 1_000
LAG = 256
"""So many records of a partition that are not in the file are looked up in the log."""
NOTED = 4_096
"""Own records that wait in memory for their place in the file."""


@dataclass(frozen=True)
class Snapshot:
    id: str
    version: int
    offset: int
    """Of the last event in it."""
    at: int
    code: str
    """The fingerprint of what made it."""
    state: str
    crc: int = 0

    @property
    def sealed(self) -> Snapshot:
        return replace(self, crc=self._crc)

    @property
    def whole(self) -> bool:
        return self.crc == self._crc

    @property
    def _crc(self) -> int:
        told = f"{self.id}\0{self.version}\0{self.offset}\0{self.at}\0{self.code}\0{self.state}"
        return int(google_crc32c.value(told.encode()))


class Nearby:
    """For any thread. What goes wrong with the file itself is mended by beginning it anew."""

    def __init__(self, path: Path, log: Log) -> None:
        self._path = path
        self._log = log
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._noted: dict[tuple[str, int], list[tuple[int, list[int]]]] = {}
        self._waiting = 0

    # --- places ---

    def note(self, topic: str, partition: int, start: int, hashes: list[int]) -> None:
        """Records that this process has appended: their places need not be read from the log."""
        with self._lock:
            self._noted.setdefault((topic, partition), []).append((start, hashes))
            self._waiting += len(hashes)
            if self._waiting >= NOTED:
                self._catch_up({topic for topic, _ in self._noted})

    def places(self, topic: str, partition: int, hashed: int, *, after: int = -1) -> list[int]:
        """The offsets of a key's records above `after`, in order; among them, once in a blue moon, another key's.

        What the file does not have yet is looked up in the log; only when that is much is it written, if nobody else
        is writing just then.
        """
        query = 'SELECT "offset" FROM places WHERE topic = ? AND hash = ? AND "offset" > ? ORDER BY "offset"'
        spec, end = self._log.topic(topic), self._log.snapshot([topic]).position.offset(topic, partition)
        with self._lock:
            if not 0 <= end - self._mended(lambda file: _covered(file, topic, partition)) <= LAG:
                self._catch_up({topic})
            with self._file as file:  # both as of one moment
                covered = _covered(file, topic, partition)
                rows: list[Any] = file.execute(query, (topic, _signed(hashed), after)).fetchall()
        found = [row[0] for row in rows if row[0] < end]
        rest = self._scanned(topic, spec.key, partition, max(covered, after + 1), end)
        return found + [offset for each, offset in rest if each == _signed(hashed)]

    def _catch_up(self, topics: Iterable[str]) -> None:
        """Somebody else writing just then does the same work: then it is left to them."""

        def work(_: apsw.Connection) -> None:
            with self._transaction() as file:
                for topic in sorted(topics):
                    self._catch_up_topic(file, topic)

        with contextlib.suppress(apsw.BusyError):
            self._mended(work)

    def _mended(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do it; once more on a file begun anew if this one is damaged."""
        try:
            return work(self._file)
        except (apsw.CorruptError, apsw.NotADBError, apsw.IOError):
            self.close()
            self._remove()
            return work(self._file)

    def _catch_up_topic(self, file: apsw.Connection, topic: str) -> None:
        spec, ends = self._log.topic(topic), self._log.snapshot([topic]).position
        covered: dict[int, int] = dict(
            file.execute('SELECT partition, "offset" FROM covered WHERE topic = ?', (topic,)).fetchall()  # type: ignore[arg-type]
        )
        if any(ends.offset(topic, partition) < offset for partition, offset in covered.items()):
            file.execute("DELETE FROM places WHERE topic = ?", (topic,))  # the topic was made anew
            covered = {}
        for partition in range(spec.partitions):
            here, end = covered.get(partition, 0), ends.offset(topic, partition)
            found: list[tuple[int, int]] = []
            for start, hashes in sorted(self._forget_noted(topic, partition)):
                if start >= here:
                    found += self._scanned(topic, spec.key, partition, here, start)  # what others have appended between
                    found += [(_signed(each), start + at) for at, each in enumerate(hashes)]
                    here = start + len(hashes)
            rest = self._scanned(topic, spec.key, partition, here, end)
            rows = ((topic, *place) for place in itertools.chain(found, rest))
            file.executemany("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", rows)
            file.execute("INSERT OR REPLACE INTO covered VALUES (?, ?, ?)", (topic, partition, end))

    def _forget_noted(self, topic: str, partition: int) -> list[tuple[int, list[int]]]:
        noted = self._noted.pop((topic, partition), [])
        self._waiting -= sum(len(hashes) for _, hashes in noted)
        return noted

    def _scanned(
        self, topic: str, key: Sequence[str], partition: int, start: int, end: int
    ) -> Iterator[tuple[int, int]]:
        if start >= end:  # as a rule: it is asked for what lies between any two of our own appends
            return
        first = max(start, self._log.extents(topic)[partition].start)
        for batch in self._log.scan(topic, partition, min(first, end), end, columns=key, metadata=True):
            hashes = key_hash([batch.column(name) for name in key]).view("int64").tolist()
            yield from zip(hashes, batch.column(OFFSET).to_pylist(), strict=True)

    # --- snapshots ---

    def snapshot(self, aggregate: str) -> Snapshot | None:
        with self._lock, contextlib.suppress(apsw.Error):
            row: Any = self._file.execute(f"{_SNAPSHOTS} WHERE id = ?", (aggregate,)).fetchone()
            return Snapshot(*row) if row is not None else None
        return None

    def snapshots(self) -> list[Snapshot]:
        with self._lock:
            rows: list[Any] = self._file.execute(f"{_SNAPSHOTS} ORDER BY id").fetchall()
        return [Snapshot(*row) for row in rows]

    def put(self, snapshots: Sequence[Snapshot]) -> None:
        rows = [(s.id, s.version, s.offset, s.at, s.code, s.state, s.crc) for s in (s.sealed for s in snapshots)]
        with self._lock, contextlib.suppress(apsw.Error), self._transaction() as file:
            file.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def forget(self, aggregate: str) -> None:
        """Take the aggregate's snapshot away; bytes and all."""
        with self._lock, self._transaction() as file:
            file.execute("DELETE FROM snapshots WHERE id = ?", (aggregate,))
        with self._lock:
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # --- the file ---

    @property
    def _file(self) -> apsw.Connection:
        if self._connection is None:
            try:
                self._connection = self._open()
            except (apsw.CorruptError, apsw.NotADBError):
                self._remove()
                self._connection = self._open()
        return self._connection

    def _open(self) -> apsw.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(PATIENCE_MS)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "NORMAL")  # what a power cut takes away is derived again
        connection.pragma("secure_delete", "ON")
        connection.execute(TABLES)
        self._path.chmod(0o600)
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        file = self._file
        file.execute("BEGIN IMMEDIATE")
        try:
            yield file
            file.execute("COMMIT")
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise

    def begin_anew(self) -> None:
        """For who found that it does not fit the log."""
        with self._lock, contextlib.suppress(apsw.BusyError), self._transaction() as file:
            file.execute("DELETE FROM places; DELETE FROM covered; DELETE FROM snapshots")

    def _remove(self) -> None:
        for ending in ("-wal", "-shm", ""):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _signed(hashed: int) -> int:
    """As SQLite keeps it: 64 bits with a sign."""
    return hashed - (1 << 64) if hashed >= 1 << 63 else hashed


def _covered(file: apsw.Connection, topic: str, partition: int) -> int:
    query = 'SELECT "offset" FROM covered WHERE topic = ? AND partition = ?'
    return int(file.execute(query, (topic, partition)).get or 0)
