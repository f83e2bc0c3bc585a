"""How records rest. A chunk is a run of records of one partition, immutable; the catalog lists it.

    inlined   `data`: the encapsulated Arrow message of `RecordBatch.serialize()`; the schema is the topic's
    .arrow    chunks/<topic>/<partition>-<producer>-<epoch>-<random>.arrow, Arrow IPC file, read memory-mapped
    .parquet  what upkeep wrote: many small chunks rolled into one

Each has a CRC-32C over all its bytes, kept in the catalog, checked before the first row is served. A chunk from which
upkeep removed records has a last column `_offset`; in all others offsets are dense.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from headwater.errors import Corrupt
from headwater.log.embedded.disk import Disk

INLINE_BYTES = 64 * 1024
INLINE_ROWS = 4096
"""More rows than this are not even tried."""
MAPPED_CHUNKS = 4096
"""How many verified chunk files a process keeps mapped: address space, not memory."""


def to_message(records: pa.RecordBatch) -> bytes:
    return bytes(records.serialize())


def to_file(records: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, records.schema) as writer:
        writer.write_batch(records)
    return sink.getvalue()


def to_parquet(records: pa.Table) -> pa.Buffer:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(records, sink, compression="zstd", row_group_size=256 * 1024, store_schema=True)
    return sink.getvalue()


def new_name(topic: str, partition: int, who: str, ending: str) -> str:
    return f"chunks/{topic}/{partition}-{who}-{uuid.uuid4().hex}.{ending}"


def crc(data: Any) -> int:
    return int(google_crc32c.value(data))


def max_time(records: pa.RecordBatch | pa.Table, column: str | None) -> int | None:
    """The greatest event time, in µs."""
    if column is None or records.num_rows == 0:
        return None
    found = records.column(column)[0] if records.num_rows == 1 else pc.max(records.column(column))
    return int(found.cast(pa.timestamp("us", "UTC")).value) if found.is_valid else None


def read_message(data: bytes, expected: int, schema: pa.Schema, *, catalog: Path, where: str) -> pa.RecordBatch:
    if crc(data) != expected:
        raise Corrupt(what=f"the inlined chunk of {where}", file=str(catalog))
    return ipc.read_record_batch(pa.py_buffer(data), schema)


def read_file(disk: Disk, path: str, expected: int) -> Iterator[pa.RecordBatch]:
    """The batches of a chunk file, one after the other: never more of it in memory than one batch, if that."""
    if path.endswith(".parquet"):
        import pyarrow.parquet as pq

        file = pq.ParquetFile(_verified(disk, path, expected))
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group).to_batches()
    else:
        yield _mapped(disk, path, expected)


@lru_cache(maxsize=MAPPED_CHUNKS)
def _mapped(disk: Disk, path: str, expected: int) -> pa.RecordBatch:
    return ipc.open_file(_verified(disk, path, expected)).get_batch(0)


@lru_cache(maxsize=MAPPED_CHUNKS)
def _verified(disk: Disk, path: str, expected: int) -> pa.Buffer:
    """The file's content, mapped or fetched, its checksum verified once a process."""
    content = disk.read(path)
    if crc(content) != expected:
        raise Corrupt(what="the chunk", file=path)
    return content


def forget_mapped() -> None:
    _mapped.cache_clear()
    _verified.cache_clear()
