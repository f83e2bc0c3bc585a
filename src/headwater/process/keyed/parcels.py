"""Rows on their way between tasks of one machine: in a file of which only the name goes through Spark.

What goes through Spark is copied by Java into a shuffle, sorted and copied back; a file is written once and mapped. It
need not last: a batch that runs again begins with its source. After a batch all of its files are removed.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

FOLDER = "parcels"
LARGE = 256 * 1024
_MARK = b"@"
"""No blob of Arrow's begins so."""


def put_away(folder: Path, rows: pa.Table, place: str) -> bytes:
    """What travels in place of the rows. Such words sort by `place`, which is the same when a batch runs again."""
    path = folder / uuid.uuid4().hex
    try:
        _write(path, rows)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, rows)
    return _MARK + os.fsencode(f"{place}\n{path}")


def _write(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)


def opened(data: bytes) -> pa.Table:
    """The rows of what has travelled, in whichever way."""
    if not data.startswith(_MARK):
        return ipc.open_stream(data).read_all()
    _, _, path = data.partition(b"\n")
    with pa.memory_map(os.fsdecode(path)) as file:
        return ipc.open_stream(file).read_all()


def remove(query: Path) -> None:
    """Those of all batches up to now: the next one begins when this one is through."""
    shutil.rmtree(query / FOLDER, ignore_errors=True)
