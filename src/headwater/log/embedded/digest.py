"""A digest of what a log says, whatever way it rests: inlined or in files, rolled up, archived, restored.

Two logs have the same digest if they have the same topics, the same ends, and the same records at the same offsets,
read in the newest schema. Each column is hashed as a few streams of bytes (which values are there, their lengths, the
values; zero where there is none), so neither the borders of chunks nor what Arrow leaves in unused bytes has a part
in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.embedded.bounds import Ints
from headwater.log.spec import TopicSpec


class PartitionDigest:
    """Of the records of one partition. They are added in the order of their offsets, in batches of any size."""

    def __init__(self) -> None:
        self._streams: dict[str, Any] = {}

    def add(self, offsets: Ints, records: pa.RecordBatch) -> None:
        if not records.num_rows:
            return
        self._feed("offset", offsets.astype("<i8"))
        for number, column in enumerate(records.columns):
            self._add(str(number), column)

    def hex(self) -> str:
        total = hashlib.blake2b(digest_size=32)
        for path in sorted(self._streams):
            total.update(path.encode() + b"\0" + self._streams[path].digest())
        return total.hexdigest()

    def _feed(self, path: str, values: Any) -> None:
        if path not in self._streams:
            self._streams[path] = hashlib.blake2b(digest_size=32)
        self._streams[path].update(np.ascontiguousarray(values).view(np.uint8).data if len(values) else b"")

    def _add(self, path: str, array: pa.Array) -> None:
        kind = array.type
        valid = np.ones(len(array), bool)
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        self._feed(f"{path}?", valid)
        if pa.types.is_boolean(kind):
            self._feed(path, pc.fill_null(array, False).to_numpy(zero_copy_only=False))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._add_text(path, array)
        elif pa.types.is_struct(kind):
            for number, child in enumerate(array.flatten()):
                self._add(f"{path}.{number}", child)
        elif pa.types.is_map(kind):
            pairs = pa.list_(pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)]))
            self._add_list(path, array.cast(pairs))
        elif pa.types.is_list(kind):
            self._add_list(path, array)
        else:
            self._feed(path, _fixed(array, valid))

    def _add_list(self, path: str, array: pa.Array) -> None:
        self._feed(f"{path}#", pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype("<i8"))
        self._add(f"{path}.", array.flatten())

    def _add_text(self, path: str, array: pa.Array) -> None:
        if array.null_count:
            array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
        _, places, content = array.buffers()
        if not len(array):
            lengths, text = np.empty(0, "<i8"), np.empty(0, np.uint8)
        else:
            ends = np.frombuffer(places, "<i4")[array.offset : array.offset + len(array) + 1]
            lengths = np.diff(ends).astype("<i8")
            whole = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
            text = whole[ends[0] : ends[-1]]
        self._feed(f"{path}#", lengths)
        self._feed(path, text)


def _fixed(array: pa.Array, valid: Any) -> Any:
    width, data = array.type.bit_width // 8, array.buffers()[1]
    if data is None:
        return np.zeros(len(array) * width, np.uint8)
    first = array.offset * width
    values: Any = np.frombuffer(data, np.uint8)[first : first + len(array) * width]
    if not valid.all():
        values = values.copy()
        values.reshape(len(array), width)[~valid] = 0
    return values


def log_digest(parts: Iterable[tuple[TopicSpec, Mapping[int, tuple[int, str]]]]) -> str:
    """Over all topics: what each is, and of each partition the end and the digest."""
    told = [
        {
            "topic": spec.name,
            "columns": [[field.name, str(field.type)] for field in spec.stored],
            "fixed": [list(spec.key), spec.time, spec.kind, spec.partitions, spec.upsert, spec.versioned],
            "partitions": [[partition, *partitions[partition]] for partition in sorted(partitions)],
        }
        for spec, partitions in parts
    ]
    told.sort(key=lambda topic: str(topic["topic"]))
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=32).hexdigest()
