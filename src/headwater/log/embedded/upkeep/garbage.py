"""Files that nothing lists any more. They stay for a grace period, for a reader may be in the middle of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

GRACE_S = 3600.0
STAGED = re.compile(r"\d+-(?P<producer>.+)-(?P<epoch>\d+)-[0-9a-f]{32}\.(arrow|parquet)")


def collect(log: EmbeddedLog, *, grace_s: float = GRACE_S) -> int:
    """Remove what was swapped out, and what was staged and never appended. Returns how many files went."""
    before = log.clock() - int(grace_s * 1_000_000)
    with log.catalog.read() as catalog:
        rows: list[Any] = catalog.execute("SELECT file FROM garbage WHERE since <= ?", (before,)).fetchall()
    swapped = [row[0] for row in rows]
    remove_files(log, swapped)
    abandoned = [name for name in orphans(log) if _is_superseded(log, name, before)]
    for name in abandoned:
        log.disk.remove(name)
    return len(swapped) + len(abandoned)


def remove_files(log: EmbeddedLog, names: list[str]) -> None:
    """First the files, for good, then their rows: a crash in between removes them once more."""
    for name in names:
        log.disk.remove(name)
    log.disk.sync_removed(names)
    log.committer.run(
        lambda catalog: catalog.executemany(
            "DELETE FROM garbage WHERE file = ?", [(name,) for name in names]
        ).fetchall()
    )


def orphans(log: EmbeddedLog) -> list[str]:
    """Files in the log's folder that no row lists, not even as garbage: staged just now, or left by a crash."""
    folder = log.root / "chunks"
    there = [str(file.relative_to(log.root)) for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    with log.catalog.read() as catalog:
        listed = {row[0] for row in catalog.execute("SELECT file FROM chunks WHERE file IS NOT NULL")}
        listed |= {row[0] for row in catalog.execute("SELECT file FROM garbage")}
    return [name for name in sorted(there) if name not in listed]


def _is_superseded(log: EmbeddedLog, name: str, before: int) -> bool:
    """Old enough, and not of a producer that may still append it: a slow batch of the newest epoch is waited for."""
    try:
        written = int((log.root / name).stat().st_mtime * 1_000_000)
    except FileNotFoundError:
        return False
    told = STAGED.fullmatch(name.rsplit("/", 1)[-1])
    if written > before or told is None:
        return False
    with log.catalog.read() as catalog:
        row: Any = catalog.execute("SELECT epoch FROM producers WHERE name = ?", (told["producer"],)).fetchone()
    return row is None or row[0] > int(told["epoch"])
