"""How records rest. A chunk is a run of records of one partition, immutable; the catalog lists it.

    inlined   `data`: the encapsulated Arrow message of `RecordBatch.serialize()`; the schema is the topic's
    .arrow    chunks/<topic>/<partition>-<producer>-<epoch>-<random>.arrow, Arrow IPC file, read memory-mapped
    .parquet  what upkeep wrote: many small chunks rolled into one

Each has a CRC-32C over all its bytes, kept in the catalog, checked before the first row is served. A chunk from which
upkeep removed records has a last column `_offset`; in all others offsets are dense.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from headwater.errors import Corrupt
from headwater.log.embedded.disk import Disk
from headwater.log.recent import Recent

INLINE_BYTES = 64 * 1024
INLINE_ROWS = 4096
"""More rows than this are not even tried."""
_END_BYTES = 4
"""Where the last of some strings ends, which Arrow does not count as theirs."""
GROUP_ROWS = 256 * 1024
GROUP_BYTES = 4 * 1024 * 1024
"""Row groups of Parquet files: what a reader of one has in memory at a time."""
MAPPED_CHUNKS = 1024
MAPPED_BYTES = 256 * 1024 * 1024
"""What a process keeps mapped of chunk files, for who reads them again. Whatever is mapped counts as the process's
memory, and takes up disk even when it was removed."""
VERIFIED_CHUNKS = 16 * 1024
"""So many a process knows to be whole: it does not read them through again."""


def to_message(records: pa.RecordBatch) -> bytes:
    return bytes(_alone(records).serialize())


def to_file(records: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, records.schema) as writer:
        writer.write_batch(_alone(records))
    return sink.getvalue()


def _alone(records: pa.RecordBatch) -> pa.RecordBatch:
    """The same records in buffers of their own. Of a slice Arrow would also write what follows it, up to 63 bytes of
    other people's records, which nobody would look for here when they are to be forgotten."""
    if all(map(_is_alone, records.columns)):
        return records
    return pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in records.columns], schema=records.schema)


def _is_alone(column: pa.Array) -> bool:
    ends = 0 if pa.types.is_primitive(column.type) else _END_BYTES
    return bool(column.offset == 0 and column.get_total_buffer_size() - column.nbytes <= ends)


def to_message_or_parquet(schema: pa.Schema, parts: Iterable[pa.Table]) -> bytes | pa.Buffer:
    """A message for a little, to be inlined; a Parquet file for more, of which one row group at a time is in memory."""
    left = iter(parts)
    few: list[pa.Table] = []
    size = 0
    for part in left:
        few.append(part)
        size += part.nbytes
        if size > INLINE_BYTES:
            return _to_parquet(schema, itertools.chain(few, left))
    batches = pa.concat_tables([schema.empty_table(), *few]).combine_chunks().to_batches()
    return to_message(batches[0] if batches else pa.RecordBatch.from_pylist([], schema))


def _to_parquet(schema: pa.Schema, parts: Iterable[pa.Table]) -> pa.Buffer:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=True) as writer:
        group: list[pa.Table] = []
        rows, size = 0, 0
        for part in parts:
            group.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(group), row_group_size=GROUP_ROWS)
                group, rows, size = [], 0, 0
        if group:
            writer.write_table(pa.concat_tables(group), row_group_size=GROUP_ROWS)
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
    opened = _opened(disk, path, expected)
    if isinstance(opened, pa.RecordBatch):
        yield opened
        return
    import pyarrow.parquet as pq

    file = pq.ParquetFile(opened)
    for group in range(file.num_row_groups):
        # What Arrow's own threads allocate and this one frees, its allocator keeps: half as much again.
        yield from file.read_row_group(group, use_threads=False).to_batches()


_mapped: Recent[pa.RecordBatch | pa.Buffer] = Recent(most=MAPPED_CHUNKS, most_bytes=MAPPED_BYTES)
_verified: Recent[bool] = Recent(most=VERIFIED_CHUNKS)


def _opened(disk: Disk, path: str, expected: int) -> pa.RecordBatch | pa.Buffer:
    """The batch of an Arrow file, the content of a Parquet file; verified, once a process if it is mapped.

    That of an archive is memory, so it is not kept.
    """
    key = disk, path, expected
    opened = _mapped.get(key)
    if opened is not None:
        return opened
    content = disk.read(path)
    if not _verified.get(key) and crc(content) != expected:
        raise Corrupt(what="the chunk", file=path)
    opened = content if path.endswith(".parquet") else ipc.open_file(content).get_batch(0)
    if "://" not in path:
        _verified.put(key, True)
        _mapped.put(key, opened, content.size)
    return opened


def let_go(disk: Disk, path: str, expected: int) -> None:
    """It stays mapped no longer than somebody holds records of it."""
    _mapped.forget((disk, path, expected))


def forget_mapped() -> None:
    _mapped.clear()
    _verified.clear()
