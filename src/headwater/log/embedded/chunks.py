"""How records rest: a small chunk is one Arrow record-batch message in the catalog, a large one an Arrow IPC file.

    small   the encapsulated message of `RecordBatch.serialize()`; the schema is the topic's
    large   chunks/<topic>/<partition>-<producer>-<epoch>-<random>.arrow, Arrow IPC file format, read memory-mapped

Both have a CRC-32C over all their bytes, kept in the catalog, checked before the first row is served.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
from pyarrow import ipc

from headwater.errors import Corrupt
from headwater.log.embedded.disk import Disk
from headwater.log.protocol import Part, Producer

INLINE_BYTES = 64 * 1024
MAPPED_CHUNKS = 4096
"""How many verified chunk files a process keeps mapped: address space, not memory."""


def encode(
    records: pa.RecordBatch, *, topic: str, partition: int, root: Path, disk: Disk, producer: Producer | None
) -> Part:
    """The part of an append; when this returns, a large one is durable."""
    rows = records.num_rows
    if records.nbytes <= INLINE_BYTES:
        data = records.serialize().to_pybytes()
        return Part(topic=topic, partition=partition, rows=rows, crc=_crc(data), data=data, size=len(data))
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, records.schema) as writer:
        writer.write_batch(records)
    content = sink.getvalue()
    who = f"{producer.name}-{producer.epoch}" if producer else "direct-0"
    file = f"chunks/{topic}/{partition}-{who}-{uuid.uuid4().hex}.arrow"
    disk.write(root / file, memoryview(content))
    return Part(topic=topic, partition=partition, rows=rows, crc=_crc(content), file=file, size=content.size)


def decode_inline(data: bytes, crc: int, schema: pa.Schema, *, catalog: Path, where: str) -> pa.RecordBatch:
    if _crc(data) != crc:
        raise Corrupt(what=f"the inlined chunk of {where}", file=str(catalog))
    return ipc.read_record_batch(pa.py_buffer(data), schema)


@lru_cache(maxsize=MAPPED_CHUNKS)
def map_file(path: Path, crc: int) -> pa.RecordBatch:
    """The one batch of a chunk file, memory-mapped, its checksum verified once a process."""
    try:
        source = pa.memory_map(str(path))
    except FileNotFoundError:
        raise Corrupt(what="the chunk (its file is missing)", file=str(path)) from None
    content = source.read_buffer()
    if _crc(content) != crc:
        raise Corrupt(what="the chunk", file=str(path))
    return ipc.open_file(content).get_batch(0)


def _crc(data: Any) -> int:
    return int(google_crc32c.value(data))
