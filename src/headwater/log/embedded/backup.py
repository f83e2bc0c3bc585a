"""Backup and restore of a `file:` log, while it is in use.

    0  What is derived and rests beside the log goes along, if somebody knows how to copy it (`Along`): what may only be
       older than the log before step 1, what must be exactly as old right after it.
    1  The catalog is copied by SQLite's online backup, inside of one read transaction: one state of the whole log.
       Pages and their checksums are copied as they are, and verified as they are read.
    2  The chunks that this copy lists, up to the append asked for, are checked where the log has them, and digested.
    3  Their files are copied, each verified by its CRC; archived ones become local files.
    4  With a position, the copy is cut back to that append (`cut`).
    5  The copy is verified in full; its digest must be that of step 2.
    6  What was copied along is compared with the log in the copy; what does not go with it is left out, and said so.
    7  The manifest, `backup.json`, is written; all is durable; then FOLDER.part is renamed to FOLDER.

Chunk files that upkeep swaps out stay for a grace period; if one is gone in step 2 or 3 all the same, all begins again
at 1, with the files that were copied already.

So a backup is whole or not there. A crash leaves FOLDER.part, which the next backup to FOLDER clears away. Restoring
goes the same way: copied into TARGET.part, verified against the manifest, renamed.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

import apsw
import pyarrow as pa

from headwater.errors import BackupFailed, BadBackup, Corrupt, NewerFormat, StorageFailed
from headwater.log.embedded import chunks
from headwater.log.embedded.catalog import Catalog, _checksum_vfs
from headwater.log.embedded.checking import Advance, Tally
from headwater.log.embedded.cut import Cut, boundary
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.manifest import MANIFEST, MANIFEST_FORMAT, LeftOut, Manifest, read_manifest
from headwater.log.embedded.read import ends_at
from headwater.log.embedded.rows import load_topics, newest_append
from headwater.log.embedded.tables import FORMAT
from headwater.log.embedded.verify import Verdict, check_records, files_in, listed_files, verify
from headwater.log.embedded.whole import whole
from headwater.log.position import Position

TRIES = 5
"""How often the catalog is copied anew because upkeep removed a file; it leaves files for an hour, so once is rare."""
PAGES = 1024
BESIDE = ("pipelines", "stores")
"""Folders beside the log whose files go along."""


class Along(Protocol):
    """Copies what is derived from a log and rests beside it. A backup that has to begin again calls it again."""

    def copy(self, root: Path, part: Path, cut: Callable[[], None]) -> None:
        """Copy from the log's folder into the backup's, into the folders `BESIDE`. Calls `cut` once: the log in the
        backup is as it is at that moment."""

    def judge(self, log: EmbeddedLog) -> tuple[LeftOut, ...]:
        """Given the log in the backup, remove there what does not go with it."""


class _Gone(Exception):
    """Internal: a file that the copied catalog lists is no longer there, nor listed by the log."""


def backup(
    log: EmbeddedLog,
    folder: Path,
    *,
    at: Position | None = None,
    along: Along | None = None,
    advance: Advance | None = None,
) -> Manifest:
    """Copy the log, as it is now or as it was at a position, into a folder that is not there yet."""
    try:
        with whole(folder) as part:
            return _Backup(log, folder, part, along, advance).run(at)
    except StorageFailed as error:
        raise BackupFailed(folder=str(folder), why=f"{error.act} {error.file}: {error.why}") from error
    except OSError as error:
        raise BackupFailed(folder=str(folder), why=str(error)) from error


class _Backup:
    def __init__(
        self, log: EmbeddedLog, folder: Path, part: Path, along: Along | None, advance: Advance | None
    ) -> None:
        self._along = along
        self._log = log
        self._folder = folder
        self._part = part
        self._disk = Disk(part)
        self._tally = Tally(0, advance)

    def run(self, at: Position | None) -> Manifest:
        for _ in range(TRIES):
            try:
                return self._try(at)
            except _Gone:
                continue
        raise BackupFailed(
            folder=str(self._folder), why=f"files were removed {TRIES} times while they were to be copied"
        )

    def _try(self, at: Position | None) -> Manifest:
        path = self._part / "catalog.db"
        if self._along is None:
            self._copy_catalog(path)
        else:
            for name in BESIDE:
                shutil.rmtree(self._part / name, ignore_errors=True)
            self._along.copy(self._log.root, self._part, lambda: self._copy_catalog(path))
        catalog = Catalog(path)
        try:
            with catalog.read() as copied:
                newest = newest_append(copied)
                number = newest if at is None else boundary(copied, at)
            expected = self._digest(catalog, number)
            self._copy_files(catalog, number)
            if number < newest:
                Cut(catalog, self._disk, number).run()  # step 4
            self._remove_unlisted(catalog)
        except Corrupt as error:
            if error.file.startswith("chunks/") and self._disk.exists(error.file):
                raise self._unlike(error.what) from error
            raise
        finally:
            catalog.close()
        before = self._tally.done
        verdict = verify(self._part, advance=lambda done, _: self._tally.reach(before + done))  # step 5
        if verdict.digest != expected:
            raise self._unlike(str(verdict.findings[0]) if verdict.findings else "its digest is not the log's")
        return self._finish(path, number, verdict)

    def _unlike(self, found: str) -> BackupFailed:
        return BackupFailed(folder=str(self._folder), why=f"the copy is not what was to be copied ({found})")

    def _copy_catalog(self, path: Path) -> None:  # step 1
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        try:
            with self._log.catalog.read() as source:
                of_all: Any = source.execute("SELECT coalesce(sum(size), 0) FROM chunks").get
                of_files: Any = source.execute("SELECT coalesce(sum(size), 0) FROM chunks WHERE file NOT NULL").get
                self._tally.done, self._tally.total = 0, 2 * of_all + of_files + self._log.catalog.path.stat().st_size
                target = apsw.Connection(str(path), vfs=_checksum_vfs())
                try:
                    with target.backup("main", source, "main") as copying:
                        while not copying.done:
                            copying.step(PAGES)
                finally:
                    target.close()
        except apsw.Error as error:
            raise Corrupt(what=f"the catalog ({error})", file=str(self._log.catalog.path)) from error
        path.chmod(0o600)

    def _digest(self, catalog: Catalog, number: int) -> str:  # step 2
        with catalog.read() as copied:
            topics = list(load_topics(copied))
            ends = {topic.spec.name: ends_at(copied, topic, number) for topic in topics}
        digest = check_records(catalog, self._log.disk, topics, ends, tally=self._tally)
        for finding in self._tally.findings:
            self._refuse(Corrupt(what=f"the log ({finding})", file=finding.file or str(self._log.root)), finding.file)
        return digest

    def _refuse(self, error: Corrupt, name: str | None) -> NoReturn:
        """The log is damaged; unless that file is missing for the reason that the log no longer lists it."""
        self._tally.findings.clear()
        if name is not None and not self._log.disk.exists(name):
            with self._log.catalog.read() as catalog:
                if catalog.execute("SELECT 1 FROM chunks WHERE file = ?", (name,)).fetchone() is None:
                    raise _Gone from None
        raise error

    def _copy_files(self, catalog: Catalog, number: int) -> None:  # step 3
        with catalog.read() as copied:
            rows: list[Any] = copied.execute(
                "SELECT c.id, t.name, c.file, c.crc, c.size FROM chunks c JOIN topics t ON t.id = c.topic"
                " WHERE c.file IS NOT NULL AND c.append <= ?",
                (number,),
            ).fetchall()
        renamed = []
        for chunk, topic, name, crc, size in rows:
            local = name
            if "://" in name:
                local = f"chunks/{topic}/{name.rsplit('/', 1)[-1]}"
                renamed.append((local, chunk))
            if not self._disk.exists(inside(local, self._folder)):
                try:
                    copy_chunk(self._log.disk, name, crc, self._disk, local)
                except Corrupt as error:
                    self._refuse(error, name)
            self._tally.advance(size)
        with catalog.write() as copied:
            copied.executemany("UPDATE chunks SET file = ? WHERE id = ?", renamed)
            copied.execute("DELETE FROM garbage")

    def _remove_unlisted(self, catalog: Catalog) -> None:
        with catalog.read() as copied:
            listed = listed_files(copied)
        for name in files_in(self._part).keys() - listed:
            self._disk.remove(name)

    def _judge(self) -> tuple[LeftOut, ...]:  # step 6
        if self._along is None:
            return ()
        copied = EmbeddedLog(self._part)
        try:
            return self._along.judge(copied)
        finally:
            copied.close()

    def _finish(self, path: Path, number: int, verdict: Verdict) -> Manifest:  # step 7
        assert verdict.digest is not None
        left_out = self._judge()
        for name in ("writer.lock", "users.lock"):
            (self._part / name).unlink(missing_ok=True)
        files = {name: self._made_durable(self._part / name) for name in beside(self._part)}
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        made = datetime.datetime.fromtimestamp(self._log.clock() / 1_000_000, datetime.UTC)
        manifest = Manifest(
            MANIFEST_FORMAT, FORMAT, made.isoformat(), self._log.url, number, str(verdict.position), verdict.digest,
            verdict.records, verdict.size, chunks.crc(path.read_bytes()), files, left_out,
        )  # fmt: skip
        self._disk.write(MANIFEST, pa.py_buffer(manifest.to_json().encode()))
        return manifest

    def _made_durable(self, path: Path) -> int:
        for place in (path, *path.parents):
            if place == self._part:
                break
            self._disk.sync_path(place)
        return chunks.crc(self._disk.read(str(path.relative_to(self._part))))


def restore(folder: Path, root: Path, *, advance: Advance | None = None) -> Manifest:
    """Make a log in `root`, which is not there yet, of the backup in `folder`; the backup is only read."""
    manifest = read_manifest(folder)
    try:
        with whole(root) as part:
            size = sum((folder / name).stat().st_size for name in manifest.files if (folder / name).is_file())
            _restore(folder, part, manifest, Tally(manifest.size + size, advance))
    except (Corrupt, NewerFormat) as error:
        raise BadBackup(folder=str(folder), why=error.what) from error
    except apsw.Error as error:
        raise BadBackup(folder=str(folder), why=f"its catalog cannot be read: {error}") from error
    except OSError as error:
        raise StorageFailed(act="restoring to", file=str(root), why=str(error)) from error
    return manifest


def _restore(folder: Path, part: Path, manifest: Manifest, tally: Tally) -> None:
    source, target = Disk(folder), Disk(part)
    copy_chunk(source, "catalog.db", manifest.catalog_crc, target, "catalog.db")
    path = part / "catalog.db"
    path.chmod(0o600)
    tally.advance(path.stat().st_size)
    catalog = Catalog(path)
    try:
        with catalog.read() as copied:
            rows: list[Any] = copied.execute("SELECT file, crc, size FROM chunks WHERE file IS NOT NULL").fetchall()
    finally:
        catalog.close()
    for name, crc, size in rows:
        copy_chunk(source, inside(name, folder), crc, target, name)
        tally.advance(size)
    for name, crc in manifest.files.items():
        copy_chunk(source, inside(name, folder, BESIDE), crc, target, name)
        tally.advance((part / name).stat().st_size)
    verdict = verify(part)
    if verdict.digest != manifest.digest:
        found = str(verdict.findings[0]) if verdict.findings else "its digest is not that of the manifest"
        raise BadBackup(folder=str(folder), why=found)


def copy_chunk(source: Disk, name: str, crc: int, target: Disk, local: str) -> None:
    content = source.read(name)
    if chunks.crc(content) != crc:
        raise Corrupt(what="the file to be copied", file=name)
    target.write(local, content)


def inside(name: str, folder: Path, rooms: tuple[str, ...] = ("chunks",)) -> str:
    """The name, if it is one of a file in these folders: what a backup says must not write anywhere else."""
    first, *rest = name.split("/")
    if first not in rooms or not rest or ".." in rest:
        raise BadBackup(folder=str(folder), why=f"it lists {name!r}, which is no file of {' or '.join(rooms)}")
    return name


def beside(part: Path) -> list[str]:
    return sorted(str(path.relative_to(part)) for room in BESIDE for path in (part / room).rglob("*") if path.is_file())
