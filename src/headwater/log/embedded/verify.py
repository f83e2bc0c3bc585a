"""A full check of a `file:` log, while it is in use: what `headwater verify` runs, and every backup and restore.

    1  The files in the folder are listed: first, so that what is appended meanwhile does not look like an orphan.
    2  Every page of the catalog that is in use is read, its checksum verified, the trees checked (`integrity_check`).
    3  The end of every partition is taken at one append boundary: up to there everything is checked.
    4  Every chunk: its bytes, its records, that it goes on where the one before ended (`checking`).
    5  What rows of the catalog say of each other.
    6  Files that nothing lists, and garbage, are counted. They are no damage.

Before all that, before SQLite may cut it, the write-ahead log is checked (`wal`). Nobody waits for it, and nothing is
changed. Not checked: free pages of the catalog, which hold nothing.
The digest is of what the log said at that boundary; compaction, retention or excision during the check may show in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headwater.errors import Corrupt
from headwater.log.embedded.catalog import CHECKSUM_BYTES, Catalog
from headwater.log.embedded.checking import Advance, Finding, PartitionCheck, Tally, damage
from headwater.log.embedded.digest import log_digest
from headwater.log.embedded.disk import Disk
from headwater.log.embedded.rows import KnownTopic, load_topics, newest_append
from headwater.log.position import AppendNumber, Position

Ends = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Verdict:
    findings: tuple[Finding, ...]
    digest: str | None
    """Of all records up to the position, however they rest; None if there is damage."""
    number: AppendNumber
    position: Position
    records: int = 0
    chunks: int = 0
    size: int = 0
    """Bytes that were checked, those of the catalog among them."""
    garbage_files: int = 0
    orphan_files: int = 0
    orphan_bytes: int = 0

    @property
    def sound(self) -> bool:
        return not any(finding.serious for finding in self.findings)

    @classmethod
    def unreadable(cls, error: Corrupt) -> Verdict:
        """Of a log that cannot even be opened."""
        return cls((Finding(str(error), file=error.file),), None, AppendNumber(0), Position())


def verify(root: Path, *, disk: Disk | None = None, advance: Advance | None = None) -> Verdict:
    """Check the log in the folder `root`, by connections of its own: pages that others have cached prove nothing."""
    try:
        catalog = Catalog(root / "catalog.db", as_is=True, check_wal=True)
    except Corrupt as error:
        return Verdict.unreadable(error)
    try:
        verification = _Verification(root, catalog, disk or Disk(root), advance)
        if catalog.broken_frame is not None:
            what = f"frame {catalog.broken_frame} is damaged, and appends after it are cut off"
            verification.found(what, file="catalog.db-wal")
        return verification.run()
    finally:
        catalog.close()


class _Verification:
    def __init__(self, root: Path, catalog: Catalog, disk: Disk, advance: Advance | None) -> None:
        self._root = root
        self._catalog = catalog
        self._disk = disk
        self._tally = Tally(0, advance)

    def run(self) -> Verdict:
        files = files_in(self._root)  # step 1
        number, topics, ends, digest, garbage, orphans = 0, list[KnownTopic](), Ends(), "", 0, list[str]()
        with self._surviving():
            self._check_pages()  # 2
        with self._surviving():
            number, topics, ends = self._boundary()  # 3
            digest = check_records(self._catalog, self._disk, topics, ends, tally=self._tally)  # 4
        with self._surviving():
            self._check_rows()  # 5
            garbage, orphans = self._unlisted(files)  # 6
        findings = tuple(self._tally.findings)
        return Verdict(
            findings,
            None if any(finding.serious for finding in findings) else digest,
            AppendNumber(number),
            Position.of(ends),
            records=self._tally.records,
            chunks=self._tally.chunks,
            size=self._tally.done,
            garbage_files=garbage,
            orphan_files=len(orphans),
            orphan_bytes=sum(files[name] for name in orphans),
        )

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Damage that makes a step impossible is a finding too; the next step may still tell more."""
        try:
            yield
        except (Corrupt, apsw.Error) as error:
            self.found(damage(error), file=self._catalog.path.name)

    def found(self, what: str, *, serious: bool = True, file: str | None = None, topic: str | None = None) -> None:
        self._tally.findings.append(Finding(what, serious, topic, file=file))

    def _check_pages(self) -> None:
        size = self._catalog.path.stat().st_size
        with self._catalog.read() as catalog:
            self._tally.total = size + int(catalog.execute("SELECT coalesce(sum(size), 0) FROM chunks").get)
            if catalog.reserve_bytes("main") != CHECKSUM_BYTES:
                self.found("its pages have no checksums", file=self._catalog.path.name)
            if not catalog.pragma("checksum_verification"):
                self.found("checksums of its pages are not verified", file=self._catalog.path.name)
            told: list[Any] = catalog.execute("PRAGMA integrity_check").fetchall()
        for (line,) in told:
            if line != "ok":
                self.found(f"SQLite says: {line}", file=self._catalog.path.name)
        self._tally.advance(size)

    def _boundary(self) -> tuple[int, list[KnownTopic], Ends]:
        with self._catalog.read() as catalog:
            topics = list(load_topics(catalog))
            rows: list[Any] = catalog.execute('SELECT topic, partition, "end" FROM ends').fetchall()
            number = newest_append(catalog)
        ends: Ends = {}
        for topic in topics:
            own = ends[topic.spec.name] = {row[1]: row[2] for row in rows if row[0] == topic.id}
            if sorted(own) != list(range(topic.spec.partitions)):
                self.found(f"it has {topic.spec.partitions} partitions, ends of {sorted(own)}", topic=topic.spec.name)
        return number, topics, ends

    def _check_rows(self) -> None:
        with self._catalog.read() as catalog:
            for wrong, query in _CONTRADICTIONS.items():
                row: Any = catalog.execute(query).fetchone()
                if row is not None:
                    self.found(f"{wrong}: {row[0]}", file=self._catalog.path.name)

    def _unlisted(self, files: dict[str, int]) -> tuple[int, list[str]]:
        with self._catalog.read() as catalog:
            listed = listed_files(catalog)
            garbage = {str(row[0]) for row in catalog.execute("SELECT file FROM garbage")}
        orphans = sorted(files.keys() - listed - garbage)
        if orphans:
            self.found(
                f"{len(orphans)} files are listed nowhere, such as {orphans[0]}; they are removed by upkeep when no"
                " append can need them",
                serious=False,
            )
        return len(garbage), orphans


_CONTRADICTIONS = {
    "chunks of a topic that is not there": "SELECT topic FROM chunks WHERE topic NOT IN (SELECT id FROM topics)",
    "a file that two chunks list": "SELECT file FROM chunks WHERE file IS NOT NULL GROUP BY file HAVING count(*) > 1",
    "a file that is both listed and garbage": "SELECT file FROM garbage WHERE file IN (SELECT file FROM chunks)",
    "a chunk that is neither inlined nor a file, or both": (
        "SELECT id FROM chunks WHERE (file IS NULL) = (data IS NULL)"
    ),
    "a chunk of an append that was never made": (
        "SELECT id FROM chunks WHERE last_append > (SELECT coalesce(max(number), 0) FROM appends)"
    ),
    "a producer whose last append was never made": (
        "SELECT name FROM producers WHERE last_append > (SELECT coalesce(max(number), 0) FROM appends)"
    ),
    "a group that has committed beyond the end": (
        'SELECT "group" FROM committed c JOIN ends e ON e.topic = c.topic AND e.partition = c.partition'
        ' WHERE c."offset" > e."end"'
    ),
}


def check_records(catalog: Catalog, disk: Disk, topics: list[KnownTopic], ends: Ends, *, tally: Tally) -> str:
    """Check all chunks before these ends; the digest of their records."""
    digests = []
    for topic in topics:
        own: dict[int, tuple[int, str]] = {}
        for partition, end in sorted(ends[topic.spec.name].items()):
            digest = PartitionCheck(catalog, disk, topic, partition, end, tally=tally).run()
            if digest is not None:
                own[partition] = (end, digest)
        digests.append((topic.spec, own))
    return log_digest(digests)


def listed_files(catalog: apsw.Connection) -> set[str]:
    return {str(row[0]) for row in catalog.execute("SELECT file FROM chunks WHERE file IS NOT NULL")}


def files_in(root: Path) -> dict[str, int]:
    """Chunk files in a log's folder, with their sizes; one that goes while we look is not there."""
    found = {}
    for path in (root / "chunks").rglob("*"):
        try:
            if path.is_file():
                found[str(path.relative_to(root))] = path.stat().st_size
        except FileNotFoundError:
            continue
    return found
