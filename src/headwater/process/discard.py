"""Removing what a dropped version left behind.

    1  Its row says `dropped` (`Versions.drop`): nobody begins it or switches to it any more.
    2  A new epoch of its producer: a run that is still going on in another process cannot append any more.
    3  Its pins go, so that upkeep no longer waits for it.
    4  Its topic goes, or `Pinned` says who still reads that.
    5  Its files go: state, Spark's checkpoint, the store. A shared query stays, without why this was parked in it.

A crash after any of them leaves what the next call removes: each step can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import TopicNotFound, VersionRefused
from headwater.log.protocol import Log
from headwater.process.parked import files_of
from headwater.process.version import Version


def discard(log: Log, version: Version, folder: Path) -> list[str]:
    """What was removed, in words; `folder` is the one that holds pipelines and stores."""
    if version.state != "dropped":
        raise VersionRefused(view=version.name, why=f"version {version.version} is not dropped", do="Drop it first")
    return list(_removed(log, version, folder))


def _removed(log: Log, version: Version, folder: Path) -> Iterator[str]:
    log.begin(version.producer)
    log.unpin(version.producer)
    log.unpin(f"store of {version.topic}")
    try:
        log.delete(version.topic)
        yield f"topic {version.topic}"
    except TopicNotFound:
        pass
    yield from files_removed(version, folder)


def files_removed(version: Version, folder: Path) -> Iterator[str]:
    """Step 5 alone."""
    for path in left_by(version, folder):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        yield str(path)


def left_by(version: Version, folder: Path) -> list[Path]:
    """Its folder, its store, its words in shared queries: as long as one of them is there, its topic may be, too."""
    store = version.store(folder)
    names = (f"{file}{suffix}" for file in (store.name, f"{store.stem}.search") for suffix in ("", "-wal", "-shm"))
    own = [path for path in (version.folder(folder), *map(store.with_name, names)) if path.exists()]
    return [*own, *files_of(folder, version.producer)]
